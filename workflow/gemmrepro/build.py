"""Build one kernel with one toolkit: a fat binary, its disassembly, and a record of what the compiler made of it.

    python -m gemmrepro.build --kernel ladder.naive --toolkit cuda13 --archs 80,86,90 --out results/build/cuda13

The fat binary holds machine code for every wanted architecture, so that what runs is what was inspected: no
driver compiles anything. PTX is added for the newest of them only, for a GPU that is newer than them all.
nvcc, cuobjdump and nvdisasm are taken from PATH. A kernel whose record names another compiler than nvcc (`COMPILERS`)
is compiled by that one, assembled and packed by the toolkit's ptxas and fatbinary, and read the same way.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from gemmrepro import build_cutile, build_dsl, cuobjdump, registry, sass
from gemmrepro.errors import UserError, run_stage
from gemmrepro.files import ROOT, write_atomic, write_json

# Flags that may change the code. Those that cannot (verbosity, search paths, threads) are added in `compile_fatbin`.
# -no-compress: the binaries are small, and any driver and any tool reads them.
COMMON_FLAGS = ("-fatbin", "-std=c++17", "-O3", "-no-compress")

_DEFINED = {"nvcc": ' as extern "C" __global__'}

_TOOL_PACKAGES = {
    "nvcc": "the CUDA compiler (package nvidia-cuda-nvcc)",
    "cuobjdump": "nvidia-cuda-cuobjdump",
    "nvdisasm": "nvidia-cuda-nvdisasm, which cuobjdump calls",
}


COMPILERS: Mapping[str, ModuleType] = {"cute_dsl": build_dsl, "cutile": build_cutile}
"""Compilers beside nvcc, by the name that a record gives them: modules with three functions.

`packages(kernel)` says which packages of which versions compile it, `flags(kernel)` what else decides the machine code,
and `compile_images(kernel, archs, threads, folder)` makes a file an architecture: ``.ptx``, which ptxas assembles, or a
``.cubin``. One whose refusals a record may expect has `refusals` too, of the same arguments. Where a compiler differs
from ptxas, its module says how: `KEEPS_PTX`; `asked_for(arch)`, the target whose code is named `arch`; `usage`, if it
prints no registers and spills.
"""

HEADER_PACKAGES = {"nvidia-cutlass": "cutlass_library/source/include"}
"""Python packages that carry C++ headers, and the folder in them that a source's includes start from."""


@dataclass(frozen=True)
class HeaderPackage:
    """An installed package of C++ headers."""

    name: str
    version: str
    include: Path


@dataclass(frozen=True)
class Toolkit:
    """The CUDA toolkit on PATH. `archs` are the architectures it can compile for ("80", "90a")."""

    name: str
    version: str
    archs: frozenset[str]


def find_toolkit(name: str) -> Toolkit:
    """Find the toolkit called `name` ("cuda12", "cuda13") on PATH.

    Raises:
        UserError: nvcc, cuobjdump or nvdisasm is missing, or nvcc is of another major version.
    """
    if name not in registry.TOOLKITS:
        raise UserError(f"there is no toolkit '{name}'; known toolkits: {', '.join(registry.TOOLKITS)}.")
    container = "run Snakemake with --use-singularity, which brings the toolkit in a container, or put it on PATH"
    for tool, package in _TOOL_PACKAGES.items():
        if shutil.which(tool) is None:
            raise UserError(f"{tool} is not on PATH, and {name} builds need it ({package}); {container}.")
    printed = _run(["nvcc", "--version"]).stdout
    found = re.search(r"release [\d.]+, V([\d.]+)", printed)
    if not found:
        raise UserError(f"nvcc --version printed no version ({printed.strip()[:200]!r}); {container}.")
    version = found[1]
    if version.split(".", 1)[0] != name.removeprefix("cuda"):
        raise UserError(
            f"the nvcc on PATH ({shutil.which('nvcc')}) is CUDA {version}, and {name} needs CUDA "
            f"{name.removeprefix('cuda')}; {container}."
        )
    archs = _run(["nvcc", "--list-gpu-code"]).stdout.split()
    return Toolkit(name, version, frozenset(arch.removeprefix("sm_") for arch in archs))


def header_packages(kernel: registry.Kernel) -> tuple[HeaderPackage, ...]:
    """The packages of headers that `kernel` names, as the environment has them.

    Raises:
        UserError: one is not known to this module, not installed, or holds no headers where they should be.
    """
    found = []
    for name in kernel.packages:
        if name not in HEADER_PACKAGES:
            known = ", ".join(sorted(HEADER_PACKAGES))
            raise UserError(
                f"{kernel.id} wants headers of '{name}', and it is not known where that package keeps them; known "
                f"packages: {known}. Add it to gemmrepro.build.HEADER_PACKAGES."
            )
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            raise UserError(
                f"{kernel.id} is compiled with the headers of the Python package {name}, which is not installed; run "
                f"Snakemake with --use-singularity, which brings it in a container, or pip install --no-deps {name}."
            ) from None
        include = Path(str(distribution.locate_file(HEADER_PACKAGES[name])))
        if not include.is_dir():
            raise UserError(
                f"{name} {distribution.version} has no headers in {HEADER_PACKAGES[name]}; install the version that "
                f"envs/requirements/cuda13.txt pins."
            )
        found.append(HeaderPackage(name, distribution.version, include))
    return tuple(found)


def packages(kernel: registry.Kernel) -> dict[str, str]:
    """Versions of the Python packages that decide the machine code of `kernel`. Raises UserError if one is missing."""
    if kernel.compiler in COMPILERS:
        return COMPILERS[kernel.compiler].packages(kernel)
    return {package.name: package.version for package in header_packages(kernel)}


def compile_flags(kernel: registry.Kernel) -> tuple[str, ...]:
    """What the compiler of `kernel` is told, architectures aside, that may change the code."""
    if kernel.compiler in COMPILERS:
        return COMPILERS[kernel.compiler].flags(kernel)
    return (*COMMON_FLAGS, *kernel.flags, *defines(kernel))


def build_key(kernel: registry.Kernel, toolkit_version: str, installed: Mapping[str, str] | None = None) -> str:
    """What a measurement of this binary is filed under: 16 hex digits.

    A hash of all that decides the machine code for one architecture: source, headers, flags, versions of the toolkit
    and of packages that compile or are compiled in, and the kernel's id. Neither the list of architectures nor any path
    is part of it, so that a build for one GPU more, or in another folder, is still the same build. `installed` gives
    the packages' versions, as a build record does, where the packages themselves are not.
    """
    parts = {
        "kernel": kernel.id,
        "source": _sha256(kernel.source_path),
        "headers": [_sha256(path) for path in kernel.header_paths],
        "flags": compile_flags(kernel),
        "toolkit": toolkit_version,
    }
    if used := packages(kernel) if installed is None else installed:
        parts["packages"] = dict(used)
    if kernel.ptx:
        parts["ptx"] = kernel.ptx
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


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
    if toolkit_name in registry.TOOLKITS and toolkit_name not in kernel.toolkits:
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
        binary = Path(folder) / "kernel.fatbin"
        log = compile_fatbin(kernel, toolkit, chosen, threads, binary)
        read = {code.entry: _machine_code(code, chosen, log, binary) for code in kernel.codes}
        fatbin = binary.read_bytes()

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


def _asked(kernel: registry.Kernel, name: str, otherwise: Any) -> Any:
    """What the module of a kernel's compiler has under `name`; what holds for nvcc if it says nothing."""
    return getattr(COMPILERS.get(kernel.compiler), name, otherwise)


def parse_ptxas(log: str, entry: str) -> dict[str, dict[str, int]]:
    """Read ``ptxas -v``: registers, spills, stack and static shared memory of `entry`, by architecture.

    cuobjdump knows no spills, and from sm_90 on it adds the 1024 bytes that the system keeps to the shared memory.
    """
    result: dict[str, dict[str, int]] = {}
    for block in re.split(r"Compiling entry function ", log)[1:]:
        head = re.match(r"'(\S+)' for '(sm_\w+)'", block)
        stack = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", block)
        registers = re.search(r"Used (\d+) registers", block)
        if not (head and stack and registers) or head[1] != entry:
            continue
        shared = re.search(r"(\d+)(?:\+\d+)? bytes smem", block)
        result[head[2]] = {
            "registers": int(registers[1]),
            "stack_bytes": int(stack[1]),
            "spill_store_bytes": int(stack[2]),
            "spill_load_bytes": int(stack[3]),
            "shared_bytes": int(shared[1]) if shared else 0,
        }
    return result


def parse_advisories(log: str) -> list[str]:
    """What ptxas says it could not do as it was asked, such as (C7508) setmaxnreg ignored (C7510) wgmma serialized."""
    return sorted({found[1].strip() for found in re.finditer(r"ptxas \w+\s*: (\(C\d+\).*)", log)})


def compile_fatbin(kernel: registry.Kernel, toolkit: Toolkit, archs: list[str], threads: int, binary: Path) -> str:
    """Compile `kernel` into a fat binary at `binary`; return what ptxas said.

    nvcc runs in the repository's root, so that messages name the source as the user knows it.

    Raises:
        UserError: the source is missing, or does not compile; holds what the compiler said.
    """
    if kernel.compiler in COMPILERS:
        images = COMPILERS[kernel.compiler].compile_images(kernel, archs, threads, binary.parent)
        return assemble(images, binary)
    if not kernel.source_path.is_file():
        raise UserError(f"the source {_shown(kernel.source_path)} of {kernel.id} is missing; restore it.")
    command = ["nvcc", *COMMON_FLAGS, *kernel.flags, *defines(kernel), *_gencode(archs, kernel.ptx)]
    command += ["-Xptxas", "-v", "--threads", str(threads)]
    # As system headers: their warnings are not ours to mend.
    command += [word for package in header_packages(kernel) for word in ("-isystem", str(package.include))]
    command += ["-I", _relative(registry.KERNELS_DIR), "-o", str(binary), _relative(kernel.source_path)]
    done = _run(command, check=False, env={**os.environ, "TMPDIR": str(binary.parent)})
    log = done.stdout + done.stderr
    if done.returncode:
        said = "\n".join(line for line in log.splitlines() if not line.startswith("ptxas info"))
        raise UserError(
            f"{kernel.id} does not compile with {toolkit.name} ({toolkit.version}) for sm_{', sm_'.join(archs)}:\n"
            f"{said.strip()}\n"
            f"Correct {_shown(kernel.source_path)} and run the same command again."
        )
    return log


def assemble(images: Mapping[str, Path], binary: Path) -> str:
    """Assemble PTX, a file an architecture ("90a"), into the fat binary that nvcc would make; return ptxas's log.

    A cubin is packed as it is.

    Raises:
        UserError: the toolkit lacks its assembler or packer, or ptxas refuses the PTX.
    """
    for tool in ("ptxas", "fatbinary"):
        if shutil.which(tool) is None:
            raise UserError(f"{tool} is not on PATH; it comes with nvcc (package nvidia-cuda-nvcc): put both there.")
    log, contents = "", []
    for arch, image in images.items():
        cubin = image.with_suffix(".cubin")
        if image != cubin:
            done = _run(["ptxas", "-v", f"-arch=sm_{arch}", "-m64", str(image), "-o", str(cubin)])
            log += done.stdout + done.stderr
        contents.append(f"kind=elf,sm={arch},file={cubin}")
    if portable := _portable([arch for arch, image in images.items() if image.suffix == ".ptx"]):
        contents.append(f"kind=ptx,sm={portable},file={images[portable]}")
    _run(["fatbinary", f"--create={binary}", "-64", "-compress=false", *(f"--image3={one}" for one in contents)])
    return log


def defines(kernel: registry.Kernel) -> list[str]:
    """nvcc's flags for the macros that a record defines. It would split a value at a bare comma."""
    return [f"-D{name}={value}".replace(",", "\\,") for name, value in sorted(kernel.defines.items())]


def _gencode(archs: list[str], ptx: str = "") -> list[str]:
    flags = [f"-gencode=arch=compute_{ptx or arch},code=sm_{arch}" for arch in archs]
    if portable := _portable(archs):
        portable = ptx or portable
        flags.append(f"-gencode=arch=compute_{portable},code=compute_{portable}")
    return flags


def _portable(archs: Iterable[str]) -> str | None:
    """The architecture whose PTX goes into the binary: the newest that is not architecture-specific.

    A GPU newer than every architecture here can still run the kernel: its driver compiles this PTX. An
    architecture-specific target (90a) promises nothing to newer GPUs, so its PTX would serve none.
    """
    return next((arch for arch in reversed(list(archs)) if arch.isdigit()), None)


def _capability(arch: str) -> tuple[int, str]:
    digits = arch.removeprefix("sm_")
    number = digits.rstrip("af")
    return int(number), digits[len(number) :]


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        raise UserError(f"{_shown(path)} is missing; restore it, or mend the record in family.py.") from None


def _relative(path: Path) -> str:
    """`path` as nvcc, run in the repository's root, is told of it."""
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


def _shown(path: Path) -> str:
    """`path` as records and messages show it: relative to the repository's root, or its bare name."""
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name


def _run(command: list[str], check: bool = True, env: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, check=False)
    if check and done.returncode:
        said = (done.stderr or done.stdout).strip()[-800:]
        raise UserError(f"{command[0]} failed ({done.returncode}): {said}; check that the toolkit on PATH is whole.")
    return done


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
