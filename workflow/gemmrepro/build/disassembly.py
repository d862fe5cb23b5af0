"""Machine code of several fat binaries, listed by as few starts of nvdisasm as their targets allow."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from gemmrepro.build import sass
from gemmrepro.build.cubins import Cubin, Section, Target, merge, read_cubin
from gemmrepro.build.toolkit import run

_BY_TABLE = ("BRX", "BRXU", "JMX", "JMXU")
"""Branches to one of several targets, which are listed in another section than the code."""


def disassembled(binaries: Iterable[Path]) -> dict[Path, tuple[sass.Function, ...]]:
    """The functions of each fat binary, in the words of ``cuobjdump -sass``.

    A binary is left out if listing its functions apart from it might change a word or if the toolkit cannot read it:
    that one is to be listed by itself.
    """
    by_target: dict[tuple[str, Target], list[tuple[Path, str, Section]]] = defaultdict(list)
    for binary in binaries:
        for arch, cubin in _cubins(binary):
            by_target[arch, cubin.target] += [(binary, name, code) for name, code in cubin.functions.items()]
    found: dict[Path, list[sass.Function]] = defaultdict(list)
    unlisted: set[Path] = set()
    for (arch, target), functions in by_target.items():
        listed = _listed(target, [code for _, _, code in functions])
        for place, (binary, name, _) in enumerate(functions):
            function = listed.get(str(place))
            if function is None or any(_opcode(instruction) in _BY_TABLE for instruction in function.instructions):
                unlisted.add(binary)
            else:
                found[binary].append(sass.Function(arch, name, function.instructions))
    return {binary: tuple(functions) for binary, functions in found.items() if binary not in unlisted}


def _cubins(binary: Path) -> list[tuple[str, Cubin]]:
    """The cubins in a fat binary, each with its architecture; none if one cannot be read or is still to be linked.

    The architecture is in the name that cuobjdump gives a cubin: "kernel.1.sm_90a.cubin". In a merged one,
    that of CUDA 13 calls sm_90a sm_90.
    """
    with tempfile.TemporaryDirectory(prefix="gemmrepro-cubins-") as folder:
        done = run(["cuobjdump", "-xelf", "all", str(binary.resolve())], check=False, folder=Path(folder))
        files = sorted(Path(folder).glob("*.cubin"))
        try:
            cubins = [(file.name.split(".")[-2], read_cubin(file.read_bytes())) for file in files]
        except ValueError:
            return []
    return [] if done.returncode or any(cubin.relocated for _, cubin in cubins) else cubins


def _listed(target: Target, functions: list[Section]) -> dict[str, sass.Function]:
    """The listings of functions for one target, by their places in the list; none if the toolkit refuses."""
    with tempfile.NamedTemporaryFile(prefix="gemmrepro-merged-", suffix=".cubin") as file:
        Path(file.name).write_bytes(merge(target, functions))
        done = run(["cuobjdump", "-sass", file.name], check=False)
    return {} if done.returncode else {function.name: function for function in sass.parse(done.stdout)}


def _opcode(instruction: sass.Instruction) -> str:
    return instruction.opcode.split(".", 1)[0]
