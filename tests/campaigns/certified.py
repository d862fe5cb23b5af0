"""The certified rungs of crt on the CPU at length: hard inputs, layouts, shapes, orders of threads, planted bugs.

    PYTHONPATH=workflow python tests/campaigns/certified.py

Prints a line a check and exits with 1 if one fails, or a planted bug goes unnoticed. A quarter of an hour on one core.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "workflow"), str(ROOT / "tests/unit")]

import certified_grid  # noqa: E402
from certified_cases import CASES, U, judged, relative  # noqa: E402

from gemmrepro.ozaki import decided, inputs  # noqa: E402

SHAPE = (140, 200, 96)
"""Four tiles of C, three of them cut, and less than a step of k."""

PLANTS = [
    ("a sign of the inner exponents lost", "evened.value && there ? sign * inner[depth + h] : 0;", "sign * ", ""),
    ("norms of the smallest number of moduli", "(exact ? 0.0f : __double2float_ru(x.size * unit))", "exact", "true"),
    ("a stage filled while it is read", "__syncthreads();  // this stage is there for all", "__syncthreads();", ""),
    ("rows with an Inf take residues", "if (x.low == SPOILED || measure.top - offset", "x.low == SPOILED ||", ""),
]

LATER_PLANTS = {
    "R11": [
        ("a launch that does not wait", "wait_for_predecessor();\n    decide(", "wait_for_predecessor();", ""),
        ("gauges read before all are there", "meet(consumer);\n        const Gauge* own", "meet(consumer);", ""),
        ("a third's stage filled too soon", "__syncthreads();\n            load(step + THIRD", "__syncthreads();", ""),
        ("rows of a panel in wrong places", "return CONTIGUOUS ? row * THIRD_K + (h ^ row % 4", "h ^ row", "h | row"),
        ("a gauge of the wrong half", "upper[HALVES] = {own[0], own[64]}", "own[64]", "own[32]"),
    ],
    "R17": [
        ("a sampled tile bounded twice, another never", "place + (place >= run % length)", ">=", ">"),
        ("gauges read before all are there", "meet();\n        const Gauge* own", "meet();", ""),
    ],
}


def layouts(device: certified_grid.Device) -> Iterator[tuple[str, bool]]:
    """Each by residues and in double, with alpha, beta and rows longer than needed."""
    for law, turned in itertools.product(("normal", "phi = 4"), itertools.product((False, True), repeat=2)):
        rng = np.random.default_rng(5)
        a, b = CASES[law][0](rng, 131, 197, 53)
        c = rng.standard_normal((131, 197))
        got = device.run(a, b, 0.75, -1.5, c, transposed=turned, padding=(3, 1, 5), seed=1)
        scale = 0.75 * np.abs(a) @ np.abs(b) + 1.5 * np.abs(c)
        close = (np.abs(got.c - (0.75 * (a @ b) - 1.5 * c)) <= 60 * U * scale).all()
        yield f"layout {turned}, {law}", bool(close and np.isnan(got.beyond).all())


def shapes(device: certified_grid.Device) -> Iterator[tuple[str, bool]]:
    for shape, loosened in itertools.product(((1, 1, 1), (3, 5, 2), (257, 1, 17), (1, 385, 300)), (0, 99)):
        a, b = inputs.normal(np.random.default_rng(8), *shape)
        got = relative(a, b, device.run(a, b, loosened=loosened).c)
        yield f"{shape}, loosened {loosened}", got <= (2 * shape[2] ** 0.5 + 1) * U + shape[2] * U


def orders(device: certified_grid.Device) -> Iterator[tuple[str, bool]]:
    """Of three steps of k, so that the rings go round; one tile in double, three by residues."""
    a, b = inputs.normal(np.random.default_rng(13), 140, 200, 300)
    a[2, 5] = 2.0**40
    a[2, 6:] *= 2.0**-40
    usual = device.run(a, b)
    for seed in (2, 3, 4):
        got = device.run(a, b, seed=seed)
        yield f"order {seed}", bool((got.c == usual.c).all() and (got.kinds == usual.kinds).all())


def glances(device: certified_grid.Device) -> Iterator[tuple[str, bool]]:
    """Only where every tile would fail does a glance give up."""
    for law, gives_up in (("normal", False), ("phi = 4", True), ("half of the rows", False)):
        rng = np.random.default_rng(12)
        a, b = CASES["phi = 4" if law == "phi = 4" else "normal"][0](rng, *SHAPE)
        if law == "half of the rows":
            a[:70] *= np.exp(6 * rng.standard_normal((70, SHAPE[2])))
        got = device.run(a, b, eager=False)
        gave_up = bool(np.isnan(got.worst).all())
        modelled = decided.hopeless(a, b, got.inner[: SHAPE[2]], decided.decide(a, b).limits[-1])
        if law == "normal":  # too small to be faster by residues
            yield "double where it is faster", got.count == 0 and device.run(a, b).count == 14
        yield f"glance, {law}", gave_up == modelled == gives_up and relative(a, b, got.c) <= SHAPE[2] * U + U


def plants(folder: Path) -> Iterator[tuple[str, bool]]:
    """Each makes a bound fail, or elements differ from those of the model."""
    source = certified_grid.source_text()
    for what, line, old, new in PLANTS:
        line = line.strip("()")
        assert source.count(line) >= 1, what
        into = folder / str(abs(hash(what)))
        into.mkdir()
        planted = certified_grid.Device(into, source.replace(line, line.replace(old, new), 1))
        a, b = inputs.normal(np.random.default_rng(3), *SHAPE)
        a[2, 5] = np.inf
        with np.errstate(invalid="ignore"):
            caught = not np.array_equal(np.isfinite(planted.run(a, b, seed=1).c), np.isfinite(a @ b))
        names = ("A D, D = 2^+-30", "phi = 2", "phi = 4")
        yield f"planted: {what}", caught or any(judged(planted, name, SHAPE, seed=1) for name in names)


def same_bits(folder: Path, level: str, old: certified_grid.Device) -> Iterator[tuple[str, bool]]:
    """A later level decides and computes what R10 does: hard inputs, layouts, nine tiles, and orders of threads."""
    shapes = ((140, 200, 96), (131, 197, 53), (300, 400, 200), (12, 200, 700))
    turned = itertools.product((False, True), repeat=2)
    into = folder / level
    into.mkdir()
    new = certified_grid.Device(into, level=level)
    for name, shape, layout, seed in zip(CASES, itertools.cycle(shapes), itertools.cycle(turned), itertools.count()):
        a, b = CASES[name][0](np.random.default_rng(3), *shape)
        first, second = (each.run(a, b, transposed=layout, seed=seed % 6) for each in (old, new))
        yield f"{level}, {name}, {shape}, {layout}", _alike(first, second)


def _alike(one: certified_grid.Outcome, other: certified_grid.Outcome) -> bool:
    names = ("kinds", "inner", "worst", "exponents_a", "exponents_b")
    equal = (np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True) for name in names)
    return bool((one.c.view(np.int64) == other.c.view(np.int64)).all()) and all(equal)


def later_plants(folder: Path, level: str, old: certified_grid.Device) -> Iterator[tuple[str, bool]]:
    """Each breaks a rule of the model, or another bit than R10's."""
    source = re.sub(r" *//.*$", "", certified_grid.source_text(level), flags=re.MULTILINE)
    for number, (what, line, of, by) in enumerate(LATER_PLANTS[level]):
        assert source.count(line) == 1, what
        into = folder / f"{level}-{number}"
        into.mkdir()
        planted = certified_grid.Device(into, source.replace(line, line.replace(of, by, 1)), level)
        a, b = CASES["outlier"][0](np.random.default_rng(3), 300, 200, 96)
        caught = False
        for seed in (1, 3, 4):
            try:
                caught = caught or not _alike(old.run(a, b), planted.run(a, b, seed=seed))
            except subprocess.CalledProcessError:
                caught = True
        yield f"planted in {level}: {what}", caught


def main() -> int:
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        device = certified_grid.Device(Path(folder))
        cases = ((f"{name}", not judged(device, name, SHAPE)) for name in CASES)
        later = (same_bits(Path(folder), level, device) for level in ("R11", "R14", "R17"))
        followed = (*later, *(later_plants(Path(folder), level, device) for level in LATER_PLANTS))
        first = (cases, layouts(device), shapes(device), orders(device), glances(device), plants(Path(folder)))
        checks = (*first, *followed)
        for what, fine in itertools.chain(*checks):
            print(f"{'ok    ' if fine else 'FAILED'}  {what}", flush=True)
            failures += not fine
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
