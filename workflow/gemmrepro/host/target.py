"""Where a run measures: resolved once, by the process that the user started, and handed on to its jobs.

Every job reads the Snakefile again, perhaps on another machine. Jobs of one run must agree on whether it measures and
for which GPU, or a plan that a login node made without a GPU would not be the one that a compute node with a GPU reads.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import asdict, dataclass
from typing import Any

from gemmrepro.errors import UserError
from gemmrepro.gpu.slots import EXPECTED
from gemmrepro.host.gpu_probe import HostGpu, find_gpus

VARIABLE = "GEMMREPRO_TARGET"
"""The environment variable that hands a target on to jobs."""


@dataclass(frozen=True)
class Target:
    """Where a run measures.

    Attributes:
        measure: ``live`` or ``recorded``.
        gpu: the GPU that jobs measure on: the configuration's, else this machine's, else None.
        why_not: why there is none.
        slots: how many jobs that need a GPU may run side by side on this machine, at least 1: for each GPU here one
            that uses it and one that starts meanwhile and waits for it (`gpu.slots`).
    """

    measure: str
    gpu: HostGpu | None
    why_not: str
    slots: int


def resolve(
    config: Mapping[str, Any], environ: MutableMapping[str, str], main: bool, containers: bool = False
) -> Target:
    """The target of this run, of which a line says what else is here; changes `environ` so that jobs find the same.

    Args:
        config: the checked configuration.
        environ: the process's environment.
        main: whether this is the process that the user started; a job's takes what it was handed, if anything.
        containers: whether jobs run in the images.

    Raises:
        UserError: ``measure: live`` without a usable GPU, here or in the configuration.
    """
    if not main and VARIABLE in environ:
        handed = json.loads(environ[VARIABLE])
        return Target(**handed | {"gpu": HostGpu(**handed["gpu"]) if handed["gpu"] else None})
    found, why_not = find_gpus(environ, containers=containers)
    configured = config.get("gpu")
    gpu = HostGpu(configured["name"], configured["capability"]) if configured else next(iter(found), None)
    target = Target(
        resolve_measure(config["measure"], gpu, why_not), gpu, "" if gpu else why_not, max(1, 2 * len(found))
    )
    if config["measure"] == "auto" and target.measure == "recorded":
        print(f"gemmrepro: measuring nothing: {why_not}; the recordings stand in", file=sys.stderr)
    elif target.measure == "live" and why_not and not configured:
        print(f"gemmrepro: measuring on {len(found)} x {found[0].name}; not used: {why_not}", file=sys.stderr)
    environ[VARIABLE] = json.dumps(asdict(target))
    environ.pop(EXPECTED, None)
    if configured:
        environ[EXPECTED] = configured["name"]
    return target


def resolve_measure(wanted: str, gpu: HostGpu | None, why_not: str) -> str:
    """Turn ``auto | live | recorded`` into ``live`` or ``recorded``.

    Raises:
        UserError: ``live`` was asked for and there is no usable GPU.
    """
    if wanted == "auto":
        return "live" if gpu else "recorded"
    if wanted == "live" and gpu is None:
        raise UserError(
            f"measure: live needs a usable NVIDIA GPU, and {why_not}. Mend that, or set measure to auto or recorded; "
            "to plan for a cluster, set gpu to the one of its compute nodes."
        )
    return wanted
