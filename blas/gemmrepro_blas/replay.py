"""Launches of a shape, worked out once with places for what varies, and replayed with numbers.

What a product launches follows from shapes, layouts and accuracy; only addresses, scalars and the stream differ from
call to call. The code that launches runs once on places instead of numbers, and a call after that fills them in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any


class Place:
    """A number that is known when launches are replayed: the value at `index` plus `offset`, through a function."""

    __slots__ = ("index", "offset", "through")

    def __init__(self, index: int, offset: int = 0, through: Callable[[int], Any] | None = None) -> None:
        self.index, self.offset, self.through = index, offset, through

    def __add__(self, more: int) -> Place:
        return Place(self.index, self.offset + more)


def placed(function: Callable[..., Any], address: Any, *arguments: Any) -> Any:
    """function(address, *arguments), once the address is known."""
    if type(address) is Place:
        return Place(address.index, address.offset, lambda known: function(known, *arguments))
    return function(address, *arguments)


class Recording:
    """Calls in order, with places among their arguments. All that is called takes two arguments or more.

    What the calls are made of lies in one list, numbers that are known first, so that a replay works out each place
    once, however many calls have it.
    """

    def __init__(self) -> None:
        self._known: list[Any] = []
        self._places: list[Place] = []
        self._calls: list[tuple[Callable[..., Any], Sequence[Any]]] = []
        self._ready: list[tuple[Callable[..., Any], Callable[[Sequence[Any]], tuple[Any, ...]]]] = []

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Note a call."""
        self._calls.append((function, arguments))

    def close(self) -> Recording:
        """Itself, once all calls are noted."""
        arguments = [each for _, given in self._calls for each in given]
        places = {id(each): each for each in arguments if type(each) is Place}
        self._known, self._places = [each for each in arguments if type(each) is not Place], [*places.values()]
        first, at = dict(zip(places, range(len(self._known), len(self._known) + len(places)), strict=True)), 0
        for function, given in self._calls:
            indices = []
            for each in given:
                indices.append(first.get(id(each), at))
                at += type(each) is not Place
            self._ready.append((function, itemgetter(*indices)))
        return self

    def replay(self, values: Sequence[Any]) -> None:
        """Make the calls, with `values` in their places."""
        filled = self._known.copy()
        for place in self._places:
            value = values[place.index]
            if place.offset:
                value += place.offset
            filled.append(value if place.through is None else place.through(value))
        for function, chosen in self._ready:
            function(*chosen(filled))
