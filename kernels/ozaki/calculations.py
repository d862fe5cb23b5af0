"""What the claims of the Ozaki scheme count without a GPU: slices of a split, and how often the host reads back."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmrepro.judge.metrics.calculated import Calculated, Inputs
from gemmrepro.ozaki import programs

ROWS = 64


def slices_of_one_binade(given: Inputs) -> Calculated:
    """Slices in fp16 of elements between 1 and 2, by the article's first split for inner products of n terms."""
    k = given.n or 0
    split = programs.naive_split(_one_binade(), k, "fp16")
    return Calculated(float(len(split)), f"{ROWS} x {ROWS} elements from 1 to 2, inner products of {k} terms")


def reads_of_the_host(given: Inputs) -> Calculated:
    """How often the first program reads from the GPU to split one operand into 7 slices of bf16."""
    launches = _Launches(_one_binade(), k=1024)
    (count, _) = programs.split(launches, "bf16")
    return Calculated(launches.reads / 2, f"{count} slices each of A and B, {launches.reads} reads in all")


def reads_of_the_fused_split(given: Inputs) -> Calculated:
    """How often the host reads between the launches of the first kernel: only a run with a host program can."""
    (kernel,) = given.kernels
    steps = len(kernel.run.steps) if not callable(kernel.run.steps) else 0
    return Calculated(float(kernel.run.program is not None), f"{steps} launches, no host program between them")


def _one_binade() -> np.ndarray:
    return np.random.default_rng(0).uniform(1.0, 2.0, (ROWS, ROWS))


class _Launches:
    """The launches of the first program on NumPy arrays, as `programs.split` uses them; counts what is read back."""

    def __init__(self, x: np.ndarray, k: int) -> None:
        self.shape, self.reads = type("Shape", (), {"k": k}), 0
        self.operands = {"a": x, "b": x.copy()}
        self.workspace: dict[str, Any] = {name: np.zeros(1) for name in ("partial", "sigma", "inverse")}
        for operand in "ab":
            self.workspace |= {f"{name}_{operand}": np.zeros_like(x) for name in ("left", "spare")}
            self.workspace |= {f"{name}_{operand}": np.zeros(32) for name in ("slices", "scale")}

    def __call__(self, entry: str, **arrays: Any) -> None:
        launch, operand = entry.split("_")
        x = arrays[operand]
        if launch == "maxima":
            self.workspace["partial"][0] = np.abs(x).max()
            return
        sigma = self.workspace["sigma"][0]
        arrays[f"left_{operand}"][...] = x - ((x + sigma) - sigma)

    def read(self, array: Any) -> Any:
        self.reads += 1
        return array
