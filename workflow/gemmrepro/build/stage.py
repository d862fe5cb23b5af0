"""Build one kernel with one toolkit: a fat binary, its disassembly, and a record of what the compiler made of it.

    python -m gemmrepro.build.stage --kernel ladder.naive --toolkit cuda13 --archs 80,86,90 --out results/build/cuda13

The fat binary holds machine code for every wanted architecture, so that what runs is what was inspected: no
driver compiles anything. PTX is added for the newest of them only, for a GPU that is newer than them all.
nvcc, cuobjdump and nvdisasm are taken from PATH. A kernel whose record names another compiler than nvcc (`COMPILERS`)
is compiled by that one, assembled and packed by the toolkit's ptxas and fatbinary, and read the same way.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.build import cuobjdump, sass
from gemmrepro.build.compilers import COMPILERS, _asked
from gemmrepro.build.key import build_key, compile_flags, packages
from gemmrepro.build.nvcc import _DEFINED, _gencode, compile_fatbin, parse_advisories, parse_ptxas
from gemmrepro.build.toolkit import Toolkit, _capability, _run, _sha256, _shown, find_toolkit
from gemmrepro.core import names
from gemmrepro.core.files import write_atomic, write_json
from gemmrepro.errors import UserError, run_stage


def wanted_archs(kernel: registry.Kernel, toolkit: Toolkit, archs: list[str]) -> list[str]:
    """Which of `archs` to compile `kernel` for: those it can run on, oldest first.

    Raises:
        UserError: an architecture that is no architecture, or that the toolkit cannot compile for, or none is left.
    """
    for arch in archs:
        if not re.fullmatch(r"\d{2,3}[af]?", arch):
            raise UserError(
                f"'{arch}' is no architecture; write the compute capability without its dot, such as 80 or 90a."
            )
        # nvcc's list leaves out the variants: 90a compiles where 90 does (and since CUDA 12.9, 100f where 100 does).
        if arch not in toolkit.archs and arch.rstrip("af") not in toolkit.archs:
            known = ", ".join(sorted(toolkit.archs, key=_capability))
            raise UserError(
                f"{toolkit.name} ({toolkit.version}) cannot compile for sm_{arch}; it knows {known}. "
                f"Take {arch} out of build.{toolkit.name} in the config, or use a newer toolkit."
            )
    chosen = sorted(set(registry.targets(kernel, archs)), key=_capability)
    if not chosen:
        if kernel.targets:
            raise UserError(
                f"{kernel.id} is written for sm_{', sm_'.join(kernel.targets)} alone, and --archs {','.join(archs)} "
                f"has no such GPU; add {kernel.targets[0].rstrip('af')} to build.{toolkit.name} in the config."
            )
        raise UserError(
            f"{kernel.id} needs compute capability {kernel.min_capability[0]}.{kernel.min_capability[1]}, and "
            f"--archs {','.join(archs)} has none; add one to build.{toolkit.name} in the config."
        )
    return chosen


def build(kernel: registry.Kernel, toolkit_name: str, archs: list[str], threads: int = 1) -> tuple[bytes, str, dict]:
    """Compile `kernel` and read what came out.

    Returns: the fat binary, the disassembly of every architecture, and the build record.

    Raises:
        UserError: see `find_toolkit` and `wanted_archs`; or the source is missing or does not compile.
    """
    if toolkit_name in names.TOOLKITS and toolkit_name not in kernel.toolkits:
        raise UserError(f"{kernel.id} is not built by {toolkit_name}; its toolkits: {', '.join(kernel.toolkits)}.")
    toolkit = find_toolkit(toolkit_name)
    chosen = wanted_archs(kernel, toolkit, archs)
    unwanted = [arch for arch in chosen if any(arch in refusal.archs for refusal in kernel.refusals)]
    if unwanted == chosen:
        raise UserError(
            f"{kernel.id} is expected not to compile for sm_{', sm_'.join(unwanted)}, and --archs has no other; add "
            f"one to build.{toolkit.name} in the config."
        )
    chosen = [arch for arch in chosen if arch not in unwanted]
    with tempfile.TemporaryDirectory(prefix="gemmrepro-build-") as folder:
        refused = {}
        if unwanted:
            tried = Path(folder) / "refused"
            tried.mkdir()
            refused = COMPILERS[kernel.compiler].refusals(kernel, unwanted, threads, tried)
        # cuTile makes a cubin of one entry point: a kernel of several launches is as many fat binaries, one behind the
        # other (see gpu.fat_binaries).
        units = kernel.codes if kernel.compiler == "cutile" else (kernel,)
        fatbin, log, read = b"", "", {}
        for number, unit in enumerate(units):
            binary = Path(folder) / str(number) / "kernel.fatbin"
            binary.parent.mkdir()
            said = compile_fatbin(unit, toolkit, chosen, threads, binary)
            read |= {code.entry: _machine_code(code, chosen, said, binary) for code in unit.codes}
            fatbin, log = fatbin + binary.read_bytes(), log + said

    text = "".join(
        f"// {kernel.id}  {arch}  {toolkit.name} {toolkit.version}\n{code}\n"
        for _, listings in read.values()
        for arch, code in listings.items()
    )
    record = {
        "kernel": kernel.id,
        "toolkit": toolkit.name,
        "toolkit_version": toolkit.version,
        "build_key": build_key(kernel, toolkit.version),
        "flags": [*compile_flags(kernel), *(_gencode(chosen, kernel.ptx) if _asked(kernel, "KEEPS_PTX", True) else [])],
        "sources": {_shown(path): _sha256(path) for path in (kernel.source_path, *kernel.header_paths)},
        "entry": kernel.entry,
        "advisories": parse_advisories(log),
        "archs": read[kernel.entry][0],
    }
    if len(kernel.codes) > 1:
        record["variants"] = {entry: archs for entry, (archs, _) in read.items()}
    if used := packages(kernel):
        record["packages"] = used
    if kernel.compiler in COMPILERS:
        record["compiler"] = kernel.compiler
    if refused:
        record["refused"] = {f"sm_{arch}": said for arch, said in refused.items()}
    return fatbin, text, record


def _machine_code(
    kernel: registry.Kernel, archs: list[str], log: str, binary: Path
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """What the compiler made of one entry point: a record, and its disassembly, an architecture."""
    functions = _functions(kernel, binary)
    resources = _run(["cuobjdump", "--dump-resource-usage", str(binary)]).stdout
    constants = cuobjdump.parse_constants(resources, kernel.entry)
    usage = _usage(kernel, log, binary, resources, functions)
    records: dict[str, dict[str, Any]] = {}
    for arch in (f"sm_{arch}" for arch in archs):
        if arch not in functions or arch not in usage or arch not in constants:
            raise UserError(
                f"the binary of {kernel.id} has no readable machine code of '{kernel.entry}' for {arch}; check that "
                f"{_shown(kernel.source_path)} defines it{_DEFINED.get(kernel.compiler, '')}, and that nvcc, cuobjdump "
                f"and nvdisasm on PATH are of one toolkit."
            )
        function = functions[arch]
        records[arch] = {
            **usage[arch],
            "constant_bytes": constants[arch],
            "barriers": function.barriers,
            "instructions": function.histogram,
            "instruction_total": len(function.instructions),
            "hot_loop": sass.format_instructions(function.hot_loop),
        }
    return records, {arch: functions[arch].text() for arch in records}


def _functions(kernel: registry.Kernel, binary: Path) -> dict[str, sass.Function]:
    """The code of a kernel's entry point by architecture."""
    listing = _run(["cuobjdump", "-sass", "-fun", kernel.entry, str(binary)]).stdout
    functions = {function.arch: function for function in sass.parse(listing) if function.name == kernel.entry}
    asked_for = _asked(kernel, "asked_for", str)
    return {asked_for(arch): function for arch, function in functions.items()}


def compiled_usage(kernel: registry.Kernel, log: str, binary: Path) -> dict[str, dict[str, int]]:
    """Registers, spills, stack and shared memory of a kernel's entry point by architecture: as ptxas said in `log`, or
    as the binary shows where the compiler says nothing.
    """
    if not _asked(kernel, "usage", None):
        return parse_ptxas(log, kernel.entry)
    resources = _run(["cuobjdump", "--dump-resource-usage", str(binary)]).stdout
    return _usage(kernel, log, binary, resources, _functions(kernel, binary))


def _usage(
    kernel: registry.Kernel, log: str, binary: Path, resources: str, functions: Mapping[str, sass.Function]
) -> dict[str, dict[str, int]]:
    """`compiled_usage`, of listings that were made already."""
    if usage := _asked(kernel, "usage", None):
        return usage(kernel.entry, resources, _run(["cuobjdump", "-elf", str(binary)]).stdout, functions)
    return parse_ptxas(log, kernel.entry)


def main() -> int:
    """Command line; writes OUT/<kernel id>.{fatbin,sass,json}, the JSON last."""
    parser = argparse.ArgumentParser(prog="gemmrepro.build", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--kernel", required=True, help="kernel id, such as ladder.naive")
    parser.add_argument("--toolkit", required=True, help="cuda12 or cuda13; must be the one on PATH")
    parser.add_argument("--archs", required=True, help="architectures, comma-separated: 80,86,90")
    parser.add_argument("--threads", type=int, default=1, help="architectures nvcc compiles at a time (default 1)")
    parser.add_argument("--out", required=True, type=Path, help="folder of the results")
    args = parser.parse_args()

    kernel = registry.kernel(args.kernel)
    started = time.monotonic()
    archs = [arch.strip() for arch in args.archs.split(",") if arch.strip()]
    fatbin, text, record = build(kernel, args.toolkit, archs, max(1, args.threads))
    write_atomic(args.out / f"{kernel.id}.fatbin", fatbin)
    write_atomic(args.out / f"{kernel.id}.sass", text)
    write_json(args.out / f"{kernel.id}.json", record)
    registers = "/".join(str(arch["registers"]) for arch in record["archs"].values())
    print(
        f"{kernel.id:24} {args.toolkit} {record['toolkit_version']:10} {record['build_key']}  "
        f"registers {registers:28} {time.monotonic() - started:.1f} s"
    )
    return 0


if __name__ == "__main__":
    run_stage(main)
