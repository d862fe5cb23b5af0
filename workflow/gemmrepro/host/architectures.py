"""Which GPU architectures each kernel is compiled for, as compute capabilities x 10.

By default that of the GPU that measures, and for a kernel whose machine code a claim counts that of its article's GPU
too. Machine code for any other architecture would be read by nothing in the run.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.core.architectures import COMPILED, KNOWN
from gemmrepro.errors import UserError
from gemmrepro.judge.metrics import METRICS
from gemmrepro.registry import Kernel, articles
from gemmrepro.registry.requirements import newest_target

AUTO = "auto"
"""The setting `build.<toolkit>` that leaves the choice to this module."""

COUNT = "count"
"""The way of judging claims that reads machine code (`judge.ways`)."""


def recorded_capability(recordings: Path) -> int | None:
    """The capability of the GPU whose recordings are in a folder; None if it holds none."""
    for path in sorted(recordings.glob("*/run.json")):
        try:
            major, minor = json.loads(path.read_text())["gpu"]["compute_capability"].split(".")
            return 10 * int(major) + int(minor)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # the stage that reads it says what is wrong with it
    return None


def counted(families: Iterable[str]) -> Mapping[str, frozenset[int]]:
    """Architectures whose machine code claims on the kernels of `families` count, by kernel.

    A claim names one (`compute.arch`), or means those of the GPUs that its article prints figures of. The claims are
    read unchecked, since this is part of every start; the stage that judges them checks them.
    """
    families = set(families)
    found: defaultdict[str, set[int]] = defaultdict(set)
    for name in articles.article_names():
        chips = (articles.chip_of(name, hardware) for hardware in articles.article(name).hardware)
        own = {chip.capability for chip in chips if chip}
        for compute in _computed(name):
            metric = METRICS.get(str(compute.get("metric")))
            if metric is None or metric.way != COUNT or (metric.word == "calculated" and "arch" not in compute):
                continue  # counters are read, or nothing is
            for kernel in _kernels(compute):
                named = str(compute.get("arch", "")).removeprefix("sm_").rstrip("af")
                if kernel.split(".")[0] in families:
                    found[kernel] |= {int(named)} if named.isdigit() else own
    return {kernel: frozenset(archs) for kernel, archs in found.items()}


def chosen(kernel: Kernel, toolkit: str, wanted: Collection[int]) -> list[str]:
    """What `toolkit` compiles `kernel` for if `wanted` are wanted: ["80", "90"]; empty if it has no suitable target.

    A kernel that suits none of them is compiled for the oldest architecture that it suits, so that its machine code can
    be judged. One whose promises all concern other architectures is compiled for the oldest of those as well.
    """
    possible = [arch for arch in KNOWN if arch in COMPILED[toolkit] and _compiles(kernel, arch)]
    archs = run_by(kernel, toolkit, wanted)
    if not any(_compiles(kernel, arch) for arch in archs):
        archs |= set(possible[:1])
    promised = {int(arch.rstrip("af")) for arch in _promised(kernel)}
    if promised and not promised & archs:
        archs |= set([arch for arch in possible if arch in promised][:1])
    return [str(arch) for arch in sorted(archs)]


def run_by(kernel: Kernel, toolkit: str, wanted: Iterable[int]) -> set[int]:
    """The architectures of `toolkit` whose code of `kernel` the GPUs of some capabilities run, its newest for each."""
    return {arch for each in wanted if (arch := newest_target(kernel, toolkit, divmod(each, 10)))}


def _compiles(kernel: Kernel, arch: int) -> bool:
    """Whether the kernel has a target for `arch` that its compiler is not expected to refuse."""
    return any(not kernel.promises.refuses(target) for target in registry.targets(kernel, [str(arch)]))


def _promised(kernel: Kernel) -> set[str]:
    """The architectures that the promises about the machine code name, if none holds for all."""
    expects = [expect for code in kernel.codes for expect in code.promises.expects]
    return {arch for expect in expects for arch in expect.archs} if all(expect.archs for expect in expects) else set()


def _kernels(compute: Mapping[str, Any]) -> list[str]:
    """The kernels that a count's `compute` names."""
    return [str(compute[key]) for key in ("kernel", "over") if key in compute] + list(compute.get("kernels", ()))


def _computed(article: str) -> list[Mapping[str, Any]]:
    """What the claims of an article compute, as far as it can be read."""
    try:
        return [claim.get("compute") or {} for claim in articles.declared(articles.folder(article) / articles.CLAIMS)]
    except UserError:
        return []
