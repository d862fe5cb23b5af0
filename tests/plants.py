"""Bugs to plant in kernels (plants.yaml): what the numerical gate must not let pass."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from records import changed

from gemmrepro import registry
from gemmrepro.core import paths
from gemmrepro.gates.gemm_cases import gemm_shapes
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel, TensorMap


@dataclass(frozen=True)
class Plant:
    """A bug in the source of `kernel`, in a header of it, or in what its record says.

    Attributes:
        header: which of its headers changes, instead of the source.
        pattern, replacement, count: what changes in the source (re.sub; a count of 0 means everywhere).
        record: fields of the record that change.
        seen_on: where alone it can show: "large", the gate's large shape, or "own", the kernel's own shapes.
    """

    kernel: str
    pattern: str = ""
    replacement: str = ""
    count: int = 1
    record: Mapping[str, Any] = field(default_factory=dict)
    seen_on: str = ""
    header: str = ""

    def apply(self) -> tuple[Kernel, str]:
        """The kernel's record, and its source, or its header, with the bug in them."""
        kernel = registry.kernel(self.kernel)
        assert not self.header or self.header in kernel.code.headers, f"{self.kernel} has no header {self.header}"
        source = (paths.KERNELS_DIR / self.header if self.header else kernel.source_path).read_text()
        if self.pattern:
            edited, times = re.subn(self.pattern, self.replacement, source, count=self.count)
            assert times >= 1 and edited != source, f"the source of {self.kernel} no longer has {self.pattern}"
            source = edited
        planted = changed(kernel, **self.record)
        assert self.pattern or planted != kernel, f"the record of {self.kernel} says so already: {self.record}"
        return planted, source

    def shapes(self) -> set[Shape] | None:
        """The shapes on which alone it shows; None where it may on any."""
        kernel = registry.kernel(self.kernel)
        return {"large": {gemm_shapes(kernel)[2]}, "own": set(kernel.promises.gate_shapes)}.get(self.seen_on)


def _plant(record: Mapping[str, Any] | None = None, **fields: Any) -> Plant:
    """A plant of the table; YAML has neither tuples nor tensor maps."""
    found = {name: tuple(value) if isinstance(value, list) else value for name, value in (record or {}).items()}
    for name, made in found.get("tensor_maps", {}).items():
        found["tensor_maps"][name] = TensorMap(tuple(made["box"]), made["swizzle"])
    return Plant(record=found, **fields)


PLANTS = {name: _plant(**one) for name, one in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text()).items()}
