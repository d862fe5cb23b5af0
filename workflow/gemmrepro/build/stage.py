"""Build kernels with one toolkit: for each a fat binary, its disassembly, and a build record.

    python -m gemmrepro build --kernels ladder.naive=80,86,90 --toolkit cuda13 --out results/build/cuda13
    python -m gemmrepro build --kernels ladder.naive=90 ladder.smem=86,90 --toolkit cuda13 --out ...

A kernel without architectures (`--kernels cute.base=`) is not compiled: its record has a build key and no machine code.
nvcc, cuobjdump and nvdisasm come from PATH; for other compilers, so do ptxas and fatbinary, which assemble and pack.
What a cache (`--cache`) holds is not compiled again. A kernel that does not compile does not keep the others from it.
"""

import json
import os
import shutil
import tempfile
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from threading import Lock

from gemmrepro import registry
from gemmrepro.build.cache import CACHE, CACHE_MB, Cache, entry_key
from gemmrepro.build.compile import Units, compile_units, inspect
from gemmrepro.build.key import keyed
from gemmrepro.build.listings import disassembled
from gemmrepro.build.record import FATBIN, RECORD, SASS
from gemmrepro.build.toolkit import Toolkit, find_toolkit
from gemmrepro.core.architectures import COMPILED, KNOWN, number
from gemmrepro.core.files import write_atomic
from gemmrepro.errors import UserError
from gemmrepro.registry.requirements import homes

TOGETHER = 16
"""Kernels whose machine code is listed at once, as nvdisasm is slow to start; a killed run loses unlisted ones."""


def build_all(
    kernels: Mapping[str, Sequence[str]], toolkit: Toolkit, threads: int, kept: Cache | None, out: Path
) -> None:
    """Build `kernels` for their architectures, `threads` at a time. Raises UserError in the end, of all that failed."""
    with tempfile.TemporaryDirectory(prefix="gemmrepro-build-") as scratch:
        # One kernel alone gets the threads for its architectures.
        family = _Family(toolkit, threads if len(kernels) == 1 else 1, kept, out, Path(scratch))
        with ThreadPoolExecutor(threads) as pool:
            started = [pool.submit(family.build, name, archs) for name, archs in kernels.items()]
            for future in as_completed(started):
                if error := future.exception():
                    pool.shutdown(cancel_futures=True)
                    raise error
        family.finish()
    if kept:
        kept.trim()
    if failed := family.failed:
        said = {name: str(failed[name]) for name in kernels if name in failed}
        lines = [text if name in text else f"{name}: {text}" for name, text in said.items()]
        if others := len(kernels) - len(failed):
            lines.append(f"The other {others} of {len(kernels)} were built.")
        raise UserError("\n".join(lines))


class _Family:
    """Kernels that are built together; `failed` holds the errors of those that are not."""

    def __init__(self, toolkit: Toolkit, threads: int, kept: Cache | None, out: Path, scratch: Path) -> None:
        self.failed: dict[str, UserError] = {}
        self._toolkit, self._threads, self._kept, self._out, self._scratch = toolkit, threads, kept, out, scratch
        # Compiled kernels whose machine code is not listed yet, what the cache files them under, how long each took.
        self._waiting: list[tuple[Units, str, float]] = []
        self._lock = Lock()

    def build(self, name: str, archs: Sequence[str]) -> None:
        """Take a kernel from the cache or compile it; every `TOGETHER` compiled ones are listed and written."""
        started = time.monotonic()
        try:
            kernel = registry.kernel(name)
            if not archs:
                self._write(name, {RECORD: keyed(kernel, self._toolkit).written()}, "not compiled")
                return
            key = entry_key(kernel, self._toolkit, archs) if self._kept else ""
            files = self._kept.get(key) if self._kept else None
            if files and set(files) == {FATBIN, SASS, RECORD}:
                self._write(name, files, "kept")
                return
            units = self._units(kernel, archs)
        except UserError as error:
            self.failed[name] = error
            return
        with self._lock:
            self._waiting.append((units, key, time.monotonic() - started))
            if len(self._waiting) < TOGETHER:
                return
            full, self._waiting = self._waiting, []
        self._list(full)

    def _units(self, kernel: registry.Kernel, archs: Sequence[str]) -> Units:
        """Compile a kernel. Architectures that no record speaks of are left out, for that reason, where it fails."""
        folder, again = self._scratch / kernel.id, self._scratch / kernel.id / "known"
        folder.mkdir()
        try:
            return compile_units(kernel, self._toolkit, archs, self._threads, folder)
        except UserError as error:
            unknown = [arch for arch in archs if arch.rstrip("af").isdigit() and number(arch) not in KNOWN]
            at_home = [arch.rstrip("af") for arch in homes(kernel) if number(arch) in COMPILED[self._toolkit.name]]
            others = [arch for arch in archs if arch not in unknown] or at_home[:1]
            if not unknown or not others:
                raise
            refused = dict.fromkeys(unknown, str(error))
        again.mkdir()
        units = compile_units(kernel, self._toolkit, others, self._threads, again)
        return replace(units, refused={**units.refused, **refused})

    def finish(self) -> None:
        self._list(self._waiting)

    def _list(self, waiting: Sequence[tuple[Units, str, float]]) -> None:
        listed = disassembled([path for units, _, _ in waiting for path in units.paths])
        for units, key, seconds in waiting:
            try:
                files = inspect(units, listed)
            except UserError as error:
                self.failed[units.kernel.id] = error
                continue
            if self._kept:
                self._kept.put(key, files)
            self._write(units.kernel.id, files, f"{seconds:.1f} s")
            shutil.rmtree(self._scratch / units.kernel.id)

    def _write(self, name: str, files: Mapping[str, bytes], how: str) -> None:
        """Write OUT/<kernel id>.{fatbin,sass,json}, the JSON last, and a line about it; remove those not in `files`."""
        for suffix in {FATBIN, SASS} - set(files):
            (self._out / f"{name}{suffix}").unlink(missing_ok=True)
        for suffix, data in files.items():
            write_atomic(self._out / f"{name}{suffix}", data)
        record = json.loads(files[RECORD])
        registers = "/".join(str(code["registers"]) for code in record["archs"].values())
        tools = f"{record['toolkit']} {record['toolkit_version']:10}"
        found = f"registers {registers:28} {how}" if registers else how
        print(f"{name:24} {tools} {record['build_key']}  {found}", flush=True)


def _limit(text: str) -> int:
    try:
        return int(float(text) * 1e6)
    except ValueError:
        raise UserError(f"{CACHE_MB}={text} is no number; set it to the size of the build cache in MB.") from None


def main(options: Namespace) -> int:
    named = (each.partition("=") for each in options.kernels)
    kernels = {name: list(filter(None, map(str.strip, archs.split(",")))) for name, _, archs in named}
    for name in kernels:
        registry.kernel(name)
    folder = options.cache or os.environ.get(CACHE)
    kept = Cache(Path(folder), _limit(os.environ.get(CACHE_MB, "500"))) if folder else None
    build_all(kernels, find_toolkit(options.toolkit), max(1, options.threads), kept, options.out)
    return 0
