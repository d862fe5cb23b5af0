"""The launch table of gemmrepro_blas, written from the records of the checkout: the only module that reads them.

Grids, lengths and bounds in a record are functions of a shape. Called with symbols instead of numbers they return
expressions, which the table holds as text; so no formula is written twice. `gemmrepro_blas.table` evaluates them.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.build.key import build_key
from gemmrepro.build.record import read_build
from gemmrepro.core.paths import ROOT
from gemmrepro.operations import Shape
from gemmrepro.ozaki import decided
from gemmrepro.registry import Kernel, Step, card

DGEMM = "crt.first_wave"
SGEMM = {
    "element": "sgemm.bf16_x6",
    "products": "sgemm.bf16_x9",
    "element, tf32": "sgemm.tf32_x3",
    "norm": "sgemm.remainders",
    "norm, 7": "sgemm.remainders_7",
    "tf32": "sgemm.tf32",
}
"""The kernel by what `sgemm` is asked for."""

BUILT = ROOT / "results" / "build" / "cuda13"


class Symbol:
    """An integer that is not known yet. Arithmetic gives expressions; a comparison, which would choose, is refused."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __bool__(self) -> bool:
        raise TypeError(f"a launch depends on whether {self.text}; the launch table holds formulas without conditions")

    def __neg__(self) -> Symbol:
        return Symbol(f"(-{self.text})")


def _joined(sign: str) -> Callable[[Any, Any], Symbol]:
    return lambda self, other: Symbol(f"({_text(self)} {sign} {_text(other)})")


for _name, _sign in {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%"}.items():
    setattr(Symbol, f"__{_name}__", _joined(_sign))
    setattr(Symbol, f"__r{_name}__", lambda self, other, _sign=_sign: _joined(_sign)(other, self))
for _name, _sign in {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}.items():
    setattr(Symbol, f"__{_name}__", _joined(_sign))


def _text(value: Any) -> str:
    return value.text if isinstance(value, Symbol) else str(int(value))


@contextmanager
def _symbols() -> Iterator[Shape]:
    """A shape of symbols, on a card of `sms` multiprocessors; min and max of symbols are expressions meanwhile."""
    before = {name: getattr(builtins, name) for name in ("min", "max")}

    def choose(name: str) -> Callable[..., Any]:
        def chosen(*values: Any, **options: Any) -> Any:
            if any(isinstance(value, Symbol) for value in values):
                return Symbol(f"{name}({', '.join(map(_text, values))})")
            return before[name](*values, **options)

        return chosen

    m, n, k, sms = map(Symbol, ("m", "n", "k", "sms"))
    with card.of(card.Card(sms, float("inf"))):  # type: ignore[arg-type]
        try:
            for name in before:
                setattr(builtins, name, choose(name))
            yield Shape(m, n, k)  # type: ignore[arg-type]
        finally:
            for name, function in before.items():
                setattr(builtins, name, function)


def _step(step: Step, shape: Shape) -> dict[str, Any]:
    launch = step.launch(shape)
    return {
        "entry": step.entry,
        "arguments": list(step.arguments),
        "maps": {name: [*wanted.box, wanted.swizzle] for name, wanted in step.tensor_maps.items()},
        "grid": [_text(blocks) for blocks in launch.grid],
        "block": list(launch.block),
        "cluster": list(launch.cluster or ()),
        "shared": int(launch.shared_bytes),
    }


def _kernel(kernel: Kernel) -> dict[str, Any]:
    with _symbols() as shape:
        return {
            "steps": [_step(step, shape) for step in kernel.own_launches],
            "arrays": {
                name: [array.dtype, [_text(each) for each in array.lengths(shape)]]
                for name, array in kernel.run.workspace.items()
            },
            "params": {name: int(value) for name, value in kernel.params.items()},
            "longest_k": kernel.accepts.at_most.get("k", decided.LONGEST_K),
        }


def table() -> dict[str, Any]:
    """The launch table: kernels, and what the device's decision of `dgemm` rests on (`gemmrepro.ozaki.decided`)."""
    names = (DGEMM, *SGEMM.values())
    return {
        "dgemm": DGEMM,
        "sgemm": SGEMM,
        "kernels": {name: _kernel(registry.kernel(name)) for name in names},
        "tile": list(decided.TILE),
        "group": decided.GROUP,
        "least_moduli": decided.LEAST,
        "microseconds": {
            "operation_8_bit": decided._TIME_8_BIT,
            "byte": decided._TIME_BYTE,
            "operation_double": decided._TIME_DOUBLE,
        },
    }


def build_it(name: str) -> str:
    """The command that makes a binary."""
    return f"`envs/run snakemake --use-singularity --cores 1 results/build/cuda13/{name}.fatbin`"


def keys(name: str, built: Path = BUILT) -> tuple[str, str]:
    """(build key that the record of a binary in `built` states, that of the sources in the tree today)."""
    kernel = registry.kernel(name)
    record = read_build(kernel, built.parent, built.name)
    return record.build_key, build_key(kernel, record.toolkit_version, record.packages)


if __name__ == "__main__":
    print(json.dumps(table(), indent=1))
