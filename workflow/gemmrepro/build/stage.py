"""Build kernels with one toolkit: for each a fat binary, its disassembly, and a build record.

    python -m gemmrepro.build.stage --kernel ladder.naive --toolkit cuda13 --archs 80,86,90 --out results/build/cuda13
    python -m gemmrepro.build.stage --kernels ladder.naive=90 ladder.smem=86,90 --toolkit cuda13 --out ...

nvcc, cuobjdump and nvdisasm come from PATH; for other compilers, so do ptxas and fatbinary, which assemble and pack.
What a cache (`--cache`) holds is not compiled again. A kernel that does not compile does not keep the others from it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from gemmrepro import registry
from gemmrepro.build.cached import CACHE, CACHE_MB, Made, made
from gemmrepro.build.toolkit import Toolkit, find_toolkit
from gemmrepro.core.cache import Cache
from gemmrepro.core.files import write_atomic
from gemmrepro.errors import UserError, run_stage


def build_all(
    kernels: Mapping[str, Sequence[str]], toolkit: Toolkit, threads: int, kept: Cache | None, out: Path
) -> None:
    """Build `kernels`, given with their architectures, `threads` at a time.

    Raises:
        UserError: after all others are built, with the message of each that failed.
    """
    # One kernel alone gets the threads for its architectures.
    inner = threads if len(kernels) == 1 else 1
    failed: dict[str, UserError] = {}
    with ThreadPoolExecutor(threads) as pool:
        started = {pool.submit(_build, name, archs, toolkit, inner, kept, out): name for name, archs in kernels.items()}
        for future in as_completed(started):
            try:
                print(future.result(), flush=True)
            except UserError as error:
                failed[started[future]] = error
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    if kept:
        kept.trim()
    if failed:
        messages = [_naming(name, str(failed[name])) for name in kernels if name in failed]
        others = len(kernels) - len(failed)
        raise UserError(
            "\n".join([*messages, *([f"The other {others} of {len(kernels)} were built."] if others else [])])
        )


def _naming(name: str, message: str) -> str:
    return message if name in message else f"{name}: {message}"


def _build(name: str, archs: Sequence[str], toolkit: Toolkit, threads: int, kept: Cache | None, out: Path) -> str:
    """Write OUT/<kernel id>.{fatbin,sass,json}, the JSON last; returns a line about it."""
    started = time.monotonic()
    result = made(registry.kernel(name), toolkit, archs, threads, kept)
    for suffix, data in result.files.items():
        write_atomic(out / f"{name}{suffix}", data)
    return _summary(name, result, time.monotonic() - started)


def _summary(name: str, result: Made, seconds: float) -> str:
    record = json.loads(result.files[".json"])
    registers = "/".join(str(code["registers"]) for code in record["archs"].values())
    how = "kept" if result.cached else f"{seconds:.1f} s"
    toolkit = f"{record['toolkit']} {record['toolkit_version']:10}"
    return f"{name:24} {toolkit} {record['build_key']}  registers {registers:28} {how}"


def _archs(text: str) -> list[str]:
    return [arch.strip() for arch in text.split(",") if arch.strip()]


def _limit(text: str) -> int:
    try:
        return int(float(text) * 1e6)
    except ValueError:
        raise UserError(f"{CACHE_MB}={text} is no number; set it to the size of the build cache in MB.") from None


def main() -> int:
    """Command line; writes OUT/<kernel id>.{fatbin,sass,json} for each kernel."""
    parser = argparse.ArgumentParser(prog="gemmrepro.build", description=str(__doc__).split("\n", 1)[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--kernel", help="kernel id, such as ladder.naive")
    which.add_argument("--kernels", nargs="+", metavar="ID=ARCHS", help="several, with their architectures")
    parser.add_argument("--toolkit", required=True, help="cuda12 or cuda13; must be the one on PATH")
    parser.add_argument("--archs", default="", help="architectures of --kernel, comma-separated: 80,86,90")
    parser.add_argument("--threads", type=int, default=1, help="kernels compiled at a time (default 1)")
    parser.add_argument("--out", required=True, type=Path, help="folder of the results")
    parser.add_argument(
        "--cache",
        type=Path,
        default=os.environ.get(CACHE) or None,
        help=f"folder of finished builds (default: {CACHE})",
    )
    args = parser.parse_args()
    if args.kernel and not args.archs:
        parser.error("--kernel needs --archs")
    wanted = dict(each.split("=", 1) if "=" in each else (each, "") for each in args.kernels or ())
    kernels = {name: _archs(archs) for name, archs in wanted.items()} or {args.kernel: _archs(args.archs)}
    for name in kernels:
        registry.kernel(name)
    kept = Cache(args.cache, _limit(os.environ.get(CACHE_MB, "500"))) if args.cache else None
    build_all(kernels, find_toolkit(args.toolkit), max(1, args.threads), kept, args.out)
    return 0


if __name__ == "__main__":
    run_stage(main)
