"""Compiles one kernel with one toolkit, and inspects the result.

The fat binary contains machine code for every requested architecture, so that the GPU runs exactly what the gates
inspect and the driver compiles nothing. It also contains PTX for the newest portable architecture, for newer GPUs.
"""

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from gemmrepro.build.key import compiler, keyed
from gemmrepro.build.listings import Function, Listings, format_instructions, parse_advisories, parse_resources
from gemmrepro.build.record import FATBIN, RECORD, SASS, MachineCode, Usage
from gemmrepro.build.toolkit import Toolkit, capability
from gemmrepro.core.paths import shown
from gemmrepro.errors import UserError
from gemmrepro.registry import Kernel, targets


def wanted_archs(kernel: Kernel, toolkit: Toolkit, archs: Sequence[str]) -> list[str]:
    """The targets of `kernel` among `archs`, oldest first.
    Raises UserError if an architecture is malformed or unknown to the toolkit, or none of them suits the kernel."""
    for arch in archs:
        if not re.fullmatch(r"\d{2,3}[af]?", arch):
            raise UserError(
                f"'{arch}' is not an architecture; write the compute capability without its dot, such as 80 or 90a."
            )
        # nvcc's list omits the suffixes: if it knows 90 it also knows 90a (and since CUDA 12.9, 100f if it knows 100).
        if arch not in toolkit.archs and arch.rstrip("af") not in toolkit.archs:
            known = ", ".join(sorted(toolkit.archs, key=capability))
            raise UserError(
                f"{toolkit.name} ({toolkit.version}) cannot compile for sm_{arch}; it knows {known}. "
                f"Take {arch} out of build.{toolkit.name} in the config, or use a newer toolkit."
            )
    if chosen := sorted(set(targets(kernel, archs)), key=capability):
        return chosen
    needs, add = f"needs compute capability {'.'.join(map(str, kernel.platform.min_capability))}", "one"
    if kernel.platform.targets:
        needs, add = f"only runs on sm_{', sm_'.join(kernel.platform.targets)}", kernel.platform.targets[0].rstrip("af")
    place = f"build.{toolkit.name} in the config"
    raise UserError(f"{kernel.id} {needs}, and --kernels {','.join(archs)} has none; add {add} to {place}.")


@dataclass(frozen=True)
class Unit:
    """A fat binary of one or more entry points, and the compiler's log."""

    kernel: Kernel
    path: Path
    log: str


@dataclass(frozen=True)
class Units:
    """A kernel's fat binaries, to be inspected while the folder exists in which they were compiled.

    Attributes:
        archs: the architectures that they hold.
        refused: messages of expected refusals by architecture; None if the source compiled after all.
    """

    kernel: Kernel
    toolkit: Toolkit
    archs: Sequence[str]
    units: Sequence[Unit]
    refused: Mapping[str, str | None]

    @property
    def paths(self) -> list[Path]:
        return [unit.path for unit in self.units]


def compile_units(kernel: Kernel, toolkit: Toolkit, archs: Sequence[str], threads: int, folder: Path) -> Units:
    """Compile `kernel` for its targets among `archs` into `folder`, `threads` of them in parallel.
    Raises UserError as `wanted_archs`, or if the toolkit is none of the kernel's, the source is missing or does not
    compile, or the compiler is expected to refuse all of `archs`."""
    if toolkit.name not in kernel.platform.toolkits:
        known = ", ".join(kernel.platform.toolkits)
        raise UserError(f"{kernel.id} is not built by {toolkit.name}; its toolkits: {known}.")
    chosen, unwanted = _without_refused(kernel, toolkit, wanted_archs(kernel, toolkit, archs))
    refused: Mapping[str, str | None] = {}
    if unwanted:
        (folder / "refused").mkdir()
        refused = compiler(kernel).refusals(kernel, unwanted, threads, folder / "refused")
    units = []
    for number, unit in enumerate(compiler(kernel).units(kernel)):
        path = folder / str(number) / "kernel.fatbin"
        path.parent.mkdir()
        units.append(Unit(unit, path, compiler(unit).compile(unit, toolkit, chosen, threads, path)))
    return Units(kernel, toolkit, chosen, units, refused)


def inspect(compiled: Units, listed: Mapping[Path, tuple[Function, ...]]) -> dict[str, bytes]:
    """A kernel's fat binary, disassembly and build record, by suffix. Raises UserError if the toolkit cannot read it.
    `listed`: functions of binaries that were listed together; see `Listings`."""
    kernel, toolkit = compiled.kernel, compiled.toolkit
    # Several fat binaries are concatenated; `gpu.loaded` splits them again.
    fatbin = b"".join(path.read_bytes() for path in compiled.paths)
    codes: dict[str, dict[str, MachineCode]] = {}
    functions: dict[str, Mapping[str, Function]] = {}
    for unit in compiled.units:
        listings = Listings(unit.path, listed)
        for code in unit.kernel.codes:
            entry = code.code.entry
            functions[entry] = {compiler(code).code_arch(arch): at for arch, at in listings.functions(entry).items()}
            codes[entry] = _machine_code(code, compiled.archs, unit.log, listings, functions[entry])
    record = keyed(kernel, toolkit)
    record = replace(
        record,
        flags=(*record.flags, *compiler(kernel).target_flags(kernel, compiled.archs)),
        advisories=tuple(parse_advisories("".join(unit.log for unit in compiled.units))),
        archs=codes[kernel.code.entry],
        variants=codes if len(kernel.codes) > 1 else {},
        refused={f"sm_{arch}": message for arch, message in compiled.refused.items()},
    )
    text = "".join(
        f"// {kernel.id}  {arch}  {toolkit.name} {toolkit.version}\n"
        f"{format_instructions(functions[entry][arch].instructions)}\n"
        for entry, by_arch in codes.items()
        for arch in by_arch
    )
    return {FATBIN: fatbin, SASS: text.encode(), RECORD: record.written()}


def compile_one(kernel: Kernel, toolkit: Toolkit, arch: str) -> tuple[bytes, Usage | None]:
    """The fat binary for `arch` ("90") alone, or several one after another; and its resources.
    Of several entry points, the most of each resource; None if the binary lacks one. Raises UserError if the source is
    missing or does not compile, or the toolkit cannot read the machine code."""
    images, usages = [], []
    with tempfile.TemporaryDirectory(prefix="gemmrepro-tune-") as folder:
        for number, unit in enumerate(compiler(kernel).units(kernel)):
            path = Path(folder) / str(number) / "kernel.fatbin"
            path.parent.mkdir()
            log = compiler(unit).compile(unit, toolkit, [arch], 1, path)
            listings = Listings(path)
            entries = [code.code.entry for code in unit.codes]
            usages += [compiler(unit).usage(entry, log, listings).get(f"sm_{arch}") for entry in entries]
            images.append(path.read_bytes())
    known = [usage for usage in usages if usage is not None]
    return b"".join(images), most(known) if len(known) == len(usages) else None


def most(usages: Sequence[Usage]) -> Usage:
    """The most that any of `usages` needs, resource by resource."""
    needs = {each.name: [getattr(usage, each.name) for usage in usages] for each in fields(Usage)}
    largest: dict[str, Any] = {name: None if None in values else max(values) for name, values in needs.items()}
    return Usage(**largest)


def _without_refused(kernel: Kernel, toolkit: Toolkit, archs: list[str]) -> tuple[list[str], list[str]]:
    """Split `archs` into those to compile for and those that the record expects the compiler to refuse."""
    unwanted = [arch for arch in archs if kernel.promises.refuses(arch)]
    if unwanted == archs:
        raise UserError(
            f"the compiler is expected to refuse {kernel.id} for sm_{', sm_'.join(unwanted)}, and --kernels has no "
            f"other; add one to build.{toolkit.name} in the config."
        )
    return [arch for arch in archs if arch not in unwanted], unwanted


def _machine_code(
    kernel: Kernel, archs: Sequence[str], log: str, listings: Listings, functions: Mapping[str, Function]
) -> dict[str, MachineCode]:
    """The machine code and resources of one entry point, by architecture ("sm_90")."""
    resources = parse_resources(listings.resources, kernel.code.entry)
    usage = compiler(kernel).usage(kernel.code.entry, log, listings)
    codes = {}
    for arch in (f"sm_{arch}" for arch in archs):
        if arch not in functions or arch not in usage or arch not in resources:
            raise UserError(
                f"the binary of {kernel.id} has no readable machine code of '{kernel.code.entry}' for {arch}; check "
                f"that {shown(kernel.source_path)} defines it{compiler(kernel).entry_hint}, and that nvcc, cuobjdump "
                f"and nvdisasm on PATH belong to the same toolkit."
            )
        function = functions[arch]
        codes[arch] = MachineCode(
            **vars(usage[arch]),
            constant_bytes=resources[arch]["CONSTANT[0]"],
            barriers=function.barriers,
            instructions=function.histogram,
            instruction_total=len(function.instructions),
            hot_loop=format_instructions(function.hot_loop),
        )
    return codes
