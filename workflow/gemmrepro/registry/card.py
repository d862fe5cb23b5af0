"""The card that launches are made for: grids of persistent kernels, and choices among tiles, depend on it.

A process launches on one card, the one that `gpu.device.open_gpu` opens. Who asks what another card launched, because a
recording is of it, asks within `of`. Elsewhere it is the reference, an H100 or H200.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class Card:
    """SMs, and the watts that they may draw; infinitely many if no limit is known."""

    sms: int
    watts: float


REFERENCE = Card(132, 700.0)
ANOTHER = Card(114, 350.0)
"""A card unlike the reference, an H100 PCIe: what is launched on both is launched on any."""

_at_hand = REFERENCE


def sms() -> int:
    return _at_hand.sms


def watts() -> float:
    """Watts that it may draw."""
    return _at_hand.watts


def use(card: Card) -> None:
    """Make `card` the one at hand from here on."""
    global _at_hand
    _at_hand = card


@contextmanager
def of(card: Card | Mapping[str, Any] | None) -> Iterator[None]:
    """Have a card at hand for a while: a given one, the one that a recording describes, or the reference."""
    before = _at_hand
    use(card if isinstance(card, Card) else described(card or {}))
    try:
        yield
    finally:
        use(before)


def described(gpu: Mapping[str, Any]) -> Card:
    """The card that a recording describes (``sm_count``, ``power_cap_w``); the reference if it describes none."""
    if "sm_count" not in gpu:
        return REFERENCE
    return Card(gpu["sm_count"], gpu.get("power_cap_w") or float("inf"))


class PerCard(Sequence[Item]):
    """A sequence that depends on the card at hand."""

    def __init__(self, items: Callable[[], Sequence[Item]]) -> None:
        self._items = items

    def __getitem__(self, place: Any) -> Any:
        return self._items()[place]

    def __len__(self) -> int:
        return len(self._items())
