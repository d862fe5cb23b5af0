"""Records of kernels from flat fields: tests name the field that matters and not its group."""

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

from gemmrepro.registry import Accepts, Call, Code, Compute, Kernel, Launch, Platform, Promises, Run, Story, Timing


class Array:
    """As much of a CuPy array as arguments need."""

    def __init__(self, pointer: int, shape: tuple[int, ...] = ()) -> None:
        self.data, self.shape = SimpleNamespace(ptr=pointer), shape


GROUPS = {
    "compute": Compute,
    "code": Code,
    "call": Call,
    "platform": Platform,
    "accepts": Accepts,
    "run": Run,
    "promises": Promises,
    "timing": Timing,
    "story": Story,
}


def _grouped(flat: dict[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Fields of the record itself, and those of its groups by group."""
    own, groups = dict(flat), {}
    for group, kind in GROUPS.items():
        named = {one.name: own.pop(one.name) for one in fields(kind) if one.name in own}
        if named:
            groups[group] = named
    return own, groups


def record(kernel_id: str, **flat: Any) -> Kernel:
    """A record of this id: a GEMM of one warp that is compared with SGEMM, but for what `flat` says."""
    usual = {"rung": "L1", "title": "", "source": "", "launch": lambda shape: Launch((1, 1, 1), (32, 1, 1))}
    own, groups = _grouped({"entry": kernel_id.split(".")[1], "baseline": "cublas.sgemm", **flat})
    made = {group: GROUPS[group](**named) for group, named in groups.items()}
    return Kernel(id=kernel_id, **usual | own, **made)


def changed(kernel: Kernel, **flat: Any) -> Kernel:
    """The record with other fields, its own or of its groups."""
    own, groups = _grouped(flat)
    return replace(
        kernel, **own, **{group: replace(getattr(kernel, group), **named) for group, named in groups.items()}
    )
