"""The article's copies, and its figures 5 and 6: kernels against cuBLAS by size, from the points of its repository."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from gemmrepro.experiments import Mark, Numbers, Panel, Table, mark, quotient

SIZES = (1024, 2048, 4096, 8192)
STEPS = {
    "base": ("first kernel", "cute.article_base"),
    "double buffer": ("double buffer", "cute.article_double_buffer"),
    "L2 swizzle": ("L2 swizzle", "cute.article_l2_swizzle"),
    "3-stage": ("three stages", "cute.article_three_stages"),
}
PYTHON = {
    "DSL": ("three stages, Python DSL", "cute.dsl_article"),
    "NVIDIA example": ("NVIDIA's example", "cute.dsl_nvidia_example"),
}

COPIES = {
    "through registers": ("cute vector copy", "cute.copy_vectors"),
    "cp.async": ("cute async copy", "cute.copy_async"),
    "cp.async, swizzled": ("cute copy kernel 128x64 tile", "cute.copy_swizzled"),
}
A100 = {"A100 40 GB": "NVIDIA A100-SXM4-40GB", "A100 80 GB": "NVIDIA A100-SXM4-80GB"}
COPY_SIZE = 8192


def _copies(numbers: Numbers) -> Iterator[Mark]:
    rate = numbers.rate_here("dram")
    for words, (system, kernel) in COPIES.items():
        there, shares = numbers.printed(system, "bandwidth"), []
        for name, chip in A100.items():
            dram = numbers.rate(chip, "dram")
            if (share := quotient(there, dram / 1e3 if dram else None)) is not None:
                shares.append(replace(share, hardware=name))
        here = quotient(numbers.swept(kernel, "gbps", COPY_SIZE, cache="cold"), rate)
        yield Mark("share", "copy", words, tuple(shares), here)


def _steps(numbers: Numbers) -> Iterator[Mark]:
    return _curves(numbers, "figure 5", STEPS, "cuBLAS")


def _python(numbers: Numbers) -> Iterator[Mark]:
    return _curves(numbers, "figure 6", PYTHON, "PyTorch")


def _curves(numbers: Numbers, figure: str, kernels: dict[str, tuple[str, str]], library: str) -> Iterator[Mark]:
    """A panel per kernel: its throughput over the library's at the same size, on the same GPU."""
    for system, (panel, kernel) in kernels.items():
        for n in SIZES:
            there = quotient(*(numbers.printed(f"{figure}: {name}", "throughput", n=n) for name in (system, library)))
            yield mark(panel, "bf16", n, there, numbers.swept(kernel, "ratio", n, cache="cold"))


CAPTION = (
    "Published: throughput over {library}'s, from the values that the article's repository draws, each the mean of "
    "nine launches under Nsight Compute, which flushes the caches. Measured: median ratio to cuBLAS, cold cache."
)


def _between(pairs: Any) -> str:
    """Whether each copy's share lies between those of the two A100s."""
    ends, here = pairs.groupby("x")["published"].agg(["min", "max"]), pairs.groupby("x")["measured"].first()
    inside = (ends["min"] <= here) & (here <= ends["max"])
    return "Copies reach shares of the DRAM between what print means on either A100" if inside.all() else ""


def _falls_short(kernels: str, pairs: Any) -> str:
    """Where print passes the library, and how far the kernels come here."""
    ahead, most = sorted(pairs[pairs["published"] > 1]["x"].unique()), pairs["measured"].max()
    if not ahead or most >= 1:
        return ""
    sizes = " and ".join(f"{n:.0f}" for n in ahead)
    return f"{kernels} kernels pass the library at {sizes} in print, and reach at most {most:.0%} of it here"


TABLES = (
    Table(
        name="copies",
        family="cute",
        title="Copies of bf16 in tiles of 128 x 64",
        panels={"share": Panel(f"{COPY_SIZE} x {COPY_SIZE}", "share of the chip's DRAM bandwidth", line=1.0)},
        marks=_copies,
        says=_between,
        caption=(
            "Bytes read and written per second over the DRAM's rate: of the two A100s by their data sheets, since the "
            "article does not say which it used, and of a plain copy on this GPU. Cold cache."
        ),
    ),
    Table(
        name="sizes_cpp",
        family="cute",
        title="The four kernels against cuBLAS by size",
        panels={words: Panel(words, "throughput over cuBLAS", line=1.0) for words, _ in STEPS.values()},
        marks=_steps,
        says=partial(_falls_short, "C++"),
        x_label="M = N = K",
        caption=f"The article's figure 5. {CAPTION.format(library='cuBLAS')}",
    ),
    Table(
        name="sizes_python",
        family="cute",
        title="The Python kernels against cuBLAS by size",
        panels={words: Panel(words, "throughput over cuBLAS", line=1.0) for words, _ in PYTHON.values()},
        marks=_python,
        says=partial(_falls_short, "Python"),
        x_label="M = N = K",
        caption=(
            f"The article's figure 6. {CAPTION.format(library='PyTorch')} The article ran NVIDIA's example in "
            "fp16, on A contiguous along M and B along N; here its design has the other kernels' operands."
        ),
    ),
)
