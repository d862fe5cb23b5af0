"""cuTile kernels by version of their compiler: environments, binaries, and what the machine code of each holds.

    python -m gemmrepro.build.versions --family cutile --jobs 2 --environments resources/compilers

compiles every kernel with every version and writes the family's table, ``kernels/<family>/compilers.csv``, which the
report shows. It needs the package index, cuobjdump, nvdisasm (of the newest version) and fatbinary, and no GPU. Rows of
today's sources are kept. The binaries that it leaves are timed by the family's experiment ``releases``.

A version of the compiler is one of the package ``nvidia-cuda-tileiras``, with the assembler and the libNVVM that it
calls. The language, ``cuda-tile``, stays at the version of the CUDA 13 image, so the source means the same throughout;
it writes the newest form of its byte code that the compiler reads.
"""

from __future__ import annotations

import argparse
import csv
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from gemmrepro.build import cutile, sass
from gemmrepro.build.fatbin import assemble
from gemmrepro.build.key import build_key
from gemmrepro.build.listings import Listings
from gemmrepro.core.files import write_atomic
from gemmrepro.core.paths import KERNELS_DIR, ROOT
from gemmrepro.core.tables import csv_text
from gemmrepro.errors import UserError, run_stage
from gemmrepro.registry import Kernel, kernels

VERSIONS = ("13.3.36", "13.4.59", "13.4.92", "13.5.37")
"""The compiler's releases that know Hopper, oldest first; 13.2 is older than Hopper's support."""

ARCH = "90"
"""The architecture that is compared."""

CALLED = ("nvidia-cuda-nvcc", "nvidia-nvvm")
"""What the compiler calls: the assembler and the library for its middle, both of the compiler's own minor version."""

LOCK = ROOT / "envs" / "requirements" / "cuda13.txt"

BINARIES = ROOT / "results" / "compilers"
"""The folder of the binaries, by default; where the experiment looks for them."""

FILE = "compilers.csv"
"""The table of a family, in its folder."""

TENSOR = re.compile(r"[HQI]GMMA(\..*)?")
LOADS = re.compile(r"UTMALDG(\..*)?")
_WAIT = re.compile(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x(\d+)")


@dataclass(frozen=True)
class Made:
    """What one version of the compiler makes of one entry point. Without an error all numbers are known.

    Attributes:
        compiler: version of ``nvidia-cuda-tileiras``.
        build_key: the kernel's build key with this version; the recordings' key for the image's version.
        error: the compiler's refusal, one line; empty if it compiled.
        registers, stack_bytes, spill_bytes: of a thread. shared_bytes, threads: of a block.
        tensor: instructions of wgmma. loads: TMA loads. waits: waits for wgmma. in_flight: groups of wgmma that may
            still run when a wait ends, the most of any wait. instructions: all, without padding.
    """

    kernel: str
    entry: str
    compiler: str
    build_key: str
    error: str = ""
    registers: int | None = None
    stack_bytes: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    threads: int | None = None
    tensor: int | None = None
    loads: int | None = None
    waits: int | None = None
    in_flight: int | None = None
    instructions: int | None = None


COLUMNS = tuple(field.name for field in fields(Made))
_NUMBERS = COLUMNS[COLUMNS.index("registers") :]


def locked(package: str) -> str:
    """The version of a package in the CUDA 13 image. Raises UserError if its lock has none."""
    found = re.search(rf"^{re.escape(package)}==(\S+)", LOCK.read_text(), re.MULTILINE)
    if not found:
        raise UserError(f"{LOCK.name} locks no {package}; name the package that it does.")
    return found[1]


def installed(version: str) -> dict[str, str]:
    """The packages of a build key with this version of the compiler."""
    language, compiler = cutile.PACKAGES
    return {language: locked(language), compiler: version}


def environment(version: str, folder: Path) -> Path:
    """Python of an environment with this version of the compiler in `folder`; made unless it is there.

    Raises:
        UserError: the packages cannot be installed; the message is pip's own.
    """
    home, ready = folder / version, folder / version / "complete"
    python = home / "bin" / "python"
    if ready.is_file():
        return python
    venv.create(home, clear=True, with_pip=True, symlinks=True)
    minor = version.rsplit(".", 1)[0]
    packages = [f"{name}=={number}" for name, number in installed(version).items()]
    packages += [f"{name}=={minor}.*,<={version}" for name in CALLED]
    done = subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", *packages], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise UserError(f"{', '.join(packages)} cannot be installed: {done.stderr.strip()[-800:]}")
    ready.touch()
    return python


def compile_all(
    some: Sequence[Kernel], version: str, python: Path, folder: Path, jobs: int, known: Sequence[Made] = ()
) -> list[Made]:
    """Compile `some` kernels with the compiler of `python`, `jobs` at a time, and read their machine code.

    Leaves a fat binary of each kernel in `folder`, see `binary`; none of a kernel that is refused.

    Args:
        folder: of the binaries of all versions.
        known: rows of an earlier table; what they say of today's sources is kept, and not compiled again.

    Raises:
        UserError: a source is missing, or fatbinary, cuobjdump or nvdisasm is not on PATH.
    """
    codes = [(kernel, code) for kernel in some for code in kernel.codes]
    earlier = {(row.kernel, row.entry, row.build_key): row for row in known if row.compiler == version}

    def compile_entry(pair: tuple[Kernel, Kernel]) -> Made:
        kernel, code = pair
        row = earlier.get((kernel.id, code.code.entry, key_of(kernel, version)))
        if row and (row.error or _part(folder, kernel, version, code).is_file()):
            return row
        return _compile_entry(kernel, code, version, python, folder)

    with ThreadPoolExecutor(jobs) as pool:
        made = list(pool.map(compile_entry, codes))
    for kernel in some:
        parts = [_part(folder, kernel, version, code) for code in kernel.codes]
        if all(part.is_file() for part in parts):
            write_atomic(binary(folder, kernel, version), b"".join(part.read_bytes() for part in parts))
    return made


def binary(folder: Path, kernel: Kernel, version: str) -> Path:
    """Where `compile_all` leaves the fat binary that a version makes of a kernel's source as it is today."""
    return folder / version / f"{kernel.id}-{key_of(kernel, version)}.fatbin"


def key_of(kernel: Kernel, version: str) -> str:
    """The build key of a kernel with this version of the compiler."""
    return build_key(kernel, version, installed(version))


def _part(folder: Path, kernel: Kernel, version: str, code: Kernel) -> Path:
    return binary(folder, kernel, version).with_suffix("") / code.code.entry / "part.fatbin"


def _compile_entry(kernel: Kernel, code: Kernel, version: str, python: Path, folder: Path) -> Made:
    """Compile one entry point of `kernel`, anew."""
    entry = code.code.entry
    made = Made(kernel.id, entry, version, key_of(kernel, version))
    part = _part(folder, kernel, version, code)
    shutil.rmtree(part.parent, ignore_errors=True)
    part.parent.mkdir(parents=True)
    cubin, message = cutile.attempts(code, [ARCH], 1, part.parent, str(python))[ARCH]
    if cubin is None:
        return replace(made, error=_said(message))
    assemble({ARCH: cubin}, part)
    return replace(made, **_facts(entry, part))


def _said(message: str) -> str:
    """The first line of a compiler's message; the place in the source follows it."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return (lines[0] if lines else "no message")[:160]


def _facts(entry: str, part: Path) -> dict[str, Any]:
    listings = Listings(part)
    functions = {cutile.CuTile().code_arch(arch): code for arch, code in listings.functions(entry).items()}
    function = functions[f"sm_{ARCH}"]
    usage = cutile.read_usage(entry, listings.resources, listings.elf, functions)[f"sm_{ARCH}"]
    return {
        **{name: getattr(usage, name) for name in ("registers", "stack_bytes", "spill_bytes", "shared_bytes")},
        "threads": usage.threads or 0,
        "instructions": len(function.instructions),
        **counted(function),
    }


def counted(function: sass.Function) -> dict[str, int]:
    """Tensor-core instructions, TMA loads, waits and groups left in flight, in the code of one entry point."""
    opcodes = function.histogram
    waits = [int(found[1], 16) for each in function.instructions if (found := _WAIT.search(each.text))]
    return {
        "tensor": sum(count for opcode, count in opcodes.items() if TENSOR.fullmatch(opcode)),
        "loads": sum(count for opcode, count in opcodes.items() if LOADS.fullmatch(opcode)),
        "waits": len(waits),
        "in_flight": max(waits, default=0),
    }


def path_of(family: str) -> Path:
    """A family's table; it need not be there."""
    return KERNELS_DIR / family / FILE


def text(rows: Sequence[Made]) -> str:
    """The table as CSV, in the order of `rows`."""
    return csv_text([asdict(row) for row in rows], COLUMNS)


def read(path: Path) -> list[Made]:
    """The rows of a table; none if there is no file. Raises UserError if it is corrupt."""
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        try:
            return [_row(line) for line in csv.DictReader(file)]
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path.name} is corrupt ({error!r}); make it again (see docs/running.md).") from None


def current(family: str, rows: Sequence[Made]) -> list[Made]:
    """Those of `rows` that were made of today's sources and constants."""
    today = {
        (kernel.id, code.code.entry, version): key_of(kernel, version)
        for kernel in kernels(family)
        if kernel.code.compiler == "cutile"
        for code in kernel.codes
        for version in {row.compiler for row in rows}
    }
    return [row for row in rows if today.get((row.kernel, row.entry, row.compiler)) == row.build_key]


def _row(line: Mapping[str, Any]) -> Made:
    numbers: dict[str, Any] = {name: int(line[name]) if line[name] else None for name in _NUMBERS}
    return Made(**{name: line[name] for name in COLUMNS if name not in _NUMBERS}, **numbers)


def kernels_of(family: str) -> list[Kernel]:
    """The family's kernels in cuTile. Raises UserError if it has none."""
    found = [kernel for kernel in kernels(family) if kernel.code.compiler == "cutile"]
    if not found:
        raise UserError(f"family {family} has no kernels in cuTile, and only its compiler's versions are compared.")
    return found


def compile_family(family: str, some: Sequence[str], environments: Path, folder: Path, jobs: int) -> None:
    """Compile every kernel of `family` with each of `some` versions, and write the family's table."""
    found, known = kernels_of(family), read(path_of(family))
    made: list[Made] = []
    for version in some:
        rows = compile_all(found, version, environment(version, environments), folder, jobs, known)
        refused = sum(bool(row.error) for row in rows)
        print(f"{version}: {len(rows) - refused} of {len(rows)} entry points compiled", file=sys.stderr)
        made += rows
    entries = [(kernel.id, code.code.entry) for kernel in found for code in kernel.codes]
    made.sort(key=lambda row: entries.index((row.kernel, row.entry)))
    write_atomic(path_of(family), text(made))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m gemmrepro.build.versions", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--family", default="cutile", help="a family with kernels in cuTile (default cutile)")
    parser.add_argument("--versions", default=",".join(VERSIONS), help="of nvidia-cuda-tileiras, by commas")
    parser.add_argument("--environments", required=True, type=Path, help="folder of the compilers; kept")
    parser.add_argument("--binaries", default=BINARIES, type=Path, help="folder of the binaries (results/compilers)")
    parser.add_argument("--jobs", type=int, default=1, help="compilations at a time")
    given = parser.parse_args()
    folders = given.environments.resolve(), given.binaries.resolve()
    compile_family(given.family, given.versions.split(","), *folders, given.jobs)
    return 0


if __name__ == "__main__":
    run_stage(main)
