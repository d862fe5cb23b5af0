"""What the article's printed code does where no GPU is needed to tell: indices, sizes and machine code."""

from __future__ import annotations

import numpy as np

from gemmrepro.judge.metrics.calculated import Calculated, Inputs

SHARED_KB = {"sm_80": (164, 163), "sm_86": (100, 99), "sm_89": (100, 99), "sm_90": (228, 227)}
"""KB of shared memory of a multiprocessor and, at most, of a block: CUDA C++ Programming Guide, table of the technical
specifications per compute capability. The CUDA system keeps 1 KB for every block."""


def shared_of_an_a100(given: Inputs) -> Calculated:
    """KB of shared memory of a multiprocessor of the A100, sm_80."""
    of_sm, of_block = SHARED_KB["sm_80"]
    return Calculated(of_sm, f"{of_sm} KB a multiprocessor, of them {of_block} a block, by the programming guide")


def merged_as_printed(given: Inputs) -> Calculated:
    """For how many numbers of bins, 1 to `options.bins`, some block size makes the printed merge right.

    The merge has a block a bin, and partial histograms are `bins` places apart. Its threads t, t + threads, ... read
    the places ``bin + t * threads``, which are those of that bin if `threads` is `bins`; then the block halves
    `threads` down to 1 and adds the upper half of its sums to the lower each time.
    """
    most = int(given.option("bins"))
    right = [threads for threads in range(1, most + 1) if _halving_adds_all(threads)]
    return Calculated(len(right), f"right for {len(right)} of {most} numbers of bins: {', '.join(map(str, right))}")


def _halving_adds_all(threads: int) -> bool:
    """Whether the first of `threads` sums holds all of them once `threads` has been halved down to 1."""
    sums = [1] * threads
    half = threads // 2
    while half:
        for t in range(half):
            sums[t] += sums[t + half]
        half //= 2
    return sums[0] == threads


def copied_as_printed(given: Inputs) -> Calculated:
    """How many of the lengths `options.first` to `options.last` the printed 128-bit copy of floats copies whole.

    `options.doubling` is 1 if each length is twice the one before. The kernel divides n, converted to fp32, by the
    number of elements of an int4, and copies that many int4.
    """
    first, last = int(given.option("first")), int(given.option("last"))
    lengths = [first]
    while lengths[-1] < last:
        lengths.append(2 * lengths[-1] if given.option("doubling", 0) else lengths[-1] + 1)
    whole = [n for n in lengths if int(np.float32(n) / np.float32(4)) * 4 == n]
    return Calculated(len(whole), f"{len(whole)} of {len(lengths)} lengths from {first:,} to {last:,}")


def instructions_of_the_cast(given: Inputs) -> Calculated:
    """Instructions that the second kernel's machine code has more of than the first one's."""
    plain, cast = (code.instructions for code in given.codes)
    more = {name: count - plain.get(name, 0) for name, count in cast.items() if count > plain.get(name, 0)}
    converting = sum(count for name, count in more.items() if name.startswith(("I2F", "F2I", "MUFU")))
    first, second = (code.instruction_total for code in given.codes)
    return Calculated(sum(more.values()), f"{second} instructions for {first}; {converting} convert or divide")
