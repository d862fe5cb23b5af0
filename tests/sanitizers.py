"""compute-sanitizer's four tools over every kernel, at shapes with tails.

    PYTHONPATH=workflow python tests/sanitizers.py run --out sanitizers.json --seconds 600
    PYTHONPATH=workflow python tests/sanitizers.py run --out sanitizers.json --kernels 'ada.*' 'memory.*'
    PYTHONPATH=workflow python tests/sanitizers.py report --out sanitizers.json --record reports/recorded/h200

Needs a GPU, built binaries and compute-sanitizer. Several processes run at a time, each over a few kernels; where one
finds something, or does not end, its kernels run again one by one. The outcome is written after each, under the build
key of the binary, and what it holds is not run again. Inputs come from the host and arrays are allocations of their
own, so that only the kernel under test is instrumented, and no array lies in the allocation of another.

`--record` merges the outcome into `sanitizers.json` of each family in a GPU's recordings, by kernel and toolkit with
the build key, and writes the manifests.
"""

import argparse
import fnmatch
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "workflow"))

from gemmrepro import registry  # noqa: E402
from gemmrepro.core.files import write_json  # noqa: E402
from gemmrepro.errors import UserError, run_stage  # noqa: E402
from gemmrepro.gpu.device import slug  # noqa: E402
from gemmrepro.host.places import find_gpus  # noqa: E402
from gemmrepro.measure.recording import CLEAN, SANITIZERS, TOOLS, check_manifest, read_sanitizers, write_manifest  # noqa: E402
from gemmrepro.operations import Shape  # noqa: E402

SUMMARY = re.compile(
    r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazards? displayed \((\d+) errors?, (\d+) warn"
)
PATIENCE = 90.0
"""Seconds that a process may take for each kernel that it runs."""

BATCH = 8
"""Kernels in a process."""

FOUND = 99
"""compute-sanitizer's exit code where it finds something."""


@dataclass(frozen=True)
class Subject:
    """A binary and the shapes that it is launched on."""

    kernel: registry.Kernel
    toolkit: str
    build_key: str
    shapes: tuple[Shape, ...]

    @property
    def targets(self) -> list[str]:
        return [f"{self.kernel.id}:{self.toolkit}:{shape}" for shape in self.shapes]

    def entry(self, tool: str) -> str:
        return f"{self.kernel.id}:{self.toolkit}:{self.build_key}:{tool}"


def shapes_of(kernel: registry.Kernel) -> tuple[Shape, ...]:
    """Shapes of several tiles and a remainder, as far as the kernel takes remainders."""
    op = kernel.compute.op
    if op.startswith("gemm"):
        step = {axis: kernel.accepts.multiple_of.get(axis, 1) for axis in "mnk"}
        wanted = [{"m": 200, "n": 136, "k": 72}, {"m": 300, "n": 776, "k": 200}]
        if "long" in kernel.params:  # a product of its own for long K
            wanted.append({"m": 300, "n": 264, "k": kernel.params["long"] + 56})
        if kernel.id == "crt.first_wave":  # tiles beside those of the first wave
            wanted.append({"m": 2100, "n": 1700, "k": 72})
        return tuple(
            Shape(**{axis: -(-size // step[axis]) * step[axis] for axis, size in one.items()}) for one in wanted
        )
    if op == "histogram":
        bins = (5_000_000, 20_000) if kernel.id == "memory.histogram_ranges" else (256, 255)
        return tuple(Shape(1, n, k) for n, k in zip((5001, 20_001), bins, strict=True) if kernel.takes(Shape(1, n, k)))
    if op == "copy":
        step = {axis: kernel.accepts.multiple_of.get(axis, 1) for axis in "mn"}
        return tuple(Shape(m * step["m"], n * step["n"], 1) for m, n in ((3, 5), (7, 2)))
    if op == "ceiling_flops":
        return (Shape(1, 1, 1),)
    if op in ("recurrence", "walk", "stream"):
        step = {axis: kernel.accepts.multiple_of.get(axis, 1) for axis in "nk"}
        return tuple(Shape(1, n * step["n"], k * step["k"]) for n, k in ((64, 3), (256, 5)))
    step = kernel.accepts.multiple_of.get("n", 1)
    return tuple(Shape(1, -(-n // step) * step, 1) for n in (5001, 20_003))


def subjects(build: Path, patterns: Sequence[str], capability: int) -> list[Subject]:
    """The binaries in `build` with code for a GPU of `capability`."""
    found = []
    for kernel in registry.kernels():
        for toolkit in kernel.platform.toolkits:
            record = build / toolkit / f"{kernel.id}.json"
            if not record.is_file() or not any(fnmatch.fnmatch(kernel.id, pattern) for pattern in patterns):
                continue
            document = json.loads(record.read_text())
            numbers = [int(arch.removeprefix("sm_").rstrip("af")) for arch in document["archs"]]
            if any(capability // 10 == number // 10 and number <= capability for number in numbers):
                found.append(Subject(kernel, toolkit, document["build_key"], shapes_of(kernel)))
    return found


def launch(targets: Sequence[str], build: Path) -> int:
    """Launch each target once; this is what compute-sanitizer runs."""
    import cupy
    import numpy as np

    from gemmrepro.core.dtypes import STORAGE, bits
    from gemmrepro.gpu import device
    from gemmrepro.gpu.loaded import Loaded
    from gemmrepro.operands import Operands
    from gemmrepro.operations import counts

    cupy.cuda.set_allocator(None)  # an allocation for each array
    session = device.open_gpu()
    for target in targets:
        name, toolkit, size = target.split(":")
        kernel, shape = registry.kernel(name), Shape(*map(int, size.split("x")))
        # A ring of links holds the addresses of its own array.
        module = cupy if kernel.compute.op == "walk" else np
        drawn = kernel.problem.operation.draw(kernel.problem, shape, 22, module)
        output = np.zeros(counts(kernel.problem, shape)[1], STORAGE[kernel.compute.dtype_out])
        bits(output)[...] = 0x7F
        operands = Operands.of(kernel, shape, [cupy.asarray(one) for one in drawn], cupy.asarray(output))
        loaded = Loaded.built(session, kernel, build, toolkit)
        for part in kernel.parts:
            loaded.bind(operands, part if kernel.run.variants else None)()
            session.sync()
        print(f"launched {target}", flush=True)
    return 0


def command(tool: str, chosen: Sequence[Subject], build: Path) -> list[str]:
    words = ["compute-sanitizer", "--tool", tool, "--report-api-errors", "no", "--error-exitcode", str(FOUND)]
    words += ["--print-limit", "3", sys.executable, str(Path(__file__).resolve()), "launch", "--build", str(build)]
    return [*words, *(target for one in chosen for target in one.targets)]


def verdict(code: int | None, said: str, targets: Sequence[str]) -> dict[str, Any]:
    """What one process says of the kernels that it launched."""
    launched = [target for target in targets if f"launched {target}\n" in said]
    summary = SUMMARY.search(said)
    counted = [int(group) for group in summary.groups() if group is not None] if summary else []
    clean = code == 0 and len(launched) == len(targets) and bool(summary) and not any(counted)
    lines = [line for line in said.splitlines() if re.search(r"=========|Error|error", line)]
    outcome = CLEAN if clean else "did not end" if code is None else "found" if counted and any(counted) else "broken"
    return {"outcome": outcome, "said": [] if clean else lines[:20]}


def ended(words: Sequence[str], limit: float) -> tuple[int | None, str]:
    """The exit code of a process, None where it did not end within `limit` seconds, and what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow")}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen(words, env=environment, start_new_session=True, **pipes)
    try:
        said, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the tool and what it runs
        said, _ = process.communicate()
        return None, said
    return process.returncode, said


class Campaign:
    """Runs what the outcome lacks, until the time is up."""

    def __init__(self, out: Path, build: Path, deadline: float, gpu: str) -> None:
        self._out, self._build, self._deadline, self._lock = out, build, deadline, Lock()
        self._gpu = gpu
        self.outcome: dict[str, Any] = json.loads(out.read_text()) if out.is_file() else {"found": {}}

    def lacks(self, tool: str, one: Subject) -> bool:
        return one.entry(tool) not in self.outcome["found"]

    def run(self, tool: str, chosen: Sequence[Subject]) -> None:
        """Run `tool` over some kernels in one process, and over each of them if that is not clean."""
        left = self._deadline - time.monotonic()
        if left < 5:
            return
        targets = [target for one in chosen for target in one.targets]
        limit = min(left, PATIENCE * len(chosen))
        code, said = ended(command(tool, chosen, self._build), limit)
        if code is None and limit == left:  # the campaign's time is up, and not the kernel's
            return
        found = verdict(code, said, targets)
        if found["outcome"] != CLEAN and len(chosen) > 1:
            for one in chosen:
                self.run(tool, [one])
            return
        with self._lock:
            for one in chosen:
                when = {"gpu": self._gpu, "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
                self.outcome["found"][one.entry(tool)] = {"shapes": list(map(str, one.shapes)), **when, **found}
            write_json(self._out, self.outcome)
        print(f"{tool:9} {found['outcome']:11} {' '.join(one.kernel.id for one in chosen)}", flush=True)


def run(arguments: argparse.Namespace) -> int:
    """The campaign; 1 if anything was found."""
    if shutil.which("compute-sanitizer") is None:
        print("compute-sanitizer is not on PATH; it is part of the CUDA toolkit.", file=sys.stderr)
        return 1
    gpus, why = find_gpus()
    if not gpus:
        print(f"no GPU was found: {why}.", file=sys.stderr)
        return 1
    start = time.monotonic()
    campaign = Campaign(arguments.out, arguments.build.resolve(), start + arguments.seconds, gpus[0].name)
    known = subjects(arguments.build, arguments.kernels, gpus[0].capability)
    jobs = []
    for first in range(0, len(known), BATCH):
        group = known[first : first + BATCH]
        for tool in TOOLS:
            if chosen := [one for one in group if campaign.lacks(tool, one)]:
                jobs.append((tool, chosen))
    with ThreadPoolExecutor(max(2, (os.cpu_count() or 4) - 4)) as pool:
        list(pool.map(lambda job: campaign.run(*job), jobs))
    left = sum(campaign.lacks(tool, one) for one in known for tool in TOOLS)
    print(f"{len(known) * len(TOOLS) - left} done, {left} left after {time.monotonic() - start:.0f} s")
    return report(arguments)


def by_family(found: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The outcome as recordings hold it, by family and kernel. Of several binaries the one that was run last counts."""
    recorded: dict[str, dict[str, Any]] = {}
    for entry, one in sorted(found.items(), key=lambda item: item[1]["date"]):
        kernel, toolkit, build_key, tool = entry.split(":")
        said = CLEAN if one["outcome"] == CLEAN else [one["outcome"], *one["said"]]
        judged = {"build_key": build_key, "date": one["date"][:10], "shapes": one["shapes"], "tools": {tool: said}}
        family = recorded.setdefault(registry.kernel(kernel).family, {})
        family[kernel] = merged(family.get(kernel), {"gpu": one["gpu"], "toolkits": {toolkit: judged}})
    return recorded


def merged(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> dict[str, Any]:
    """A kernel's outcome with another in it: of two binaries the later counts, of one what either says of its tools."""
    if old is None:
        return dict(new)
    toolkits = dict(old["toolkits"])
    for toolkit, judged in new["toolkits"].items():
        before = toolkits.get(toolkit)
        same = before and all(before[name] == judged[name] for name in ("build_key", "shapes"))
        if before and same:
            toolkits[toolkit] = {**judged, "tools": {**before["tools"], **judged["tools"]}}
        elif not before or before["date"] <= judged["date"]:
            toolkits[toolkit] = judged
    return {"gpu": new["gpu"], "toolkits": toolkits}


def record(found: Mapping[str, Any], recordings: Path) -> None:
    """Merge an outcome into the recordings of the GPU that it is of; what they say of other binaries stays.

    Raises:
        UserError: there is no such recording, it is corrupt, or it is another GPU's.
    """
    for gpu in {one["gpu"] for one in found.values()}:
        if slug(gpu) != recordings.name:
            raise UserError(f"the outcome is of {gpu}, and not of {recordings}; name the recordings of that GPU.")
    for family, kernels in by_family(found).items():
        folder = recordings / family
        if not folder.is_dir():
            raise UserError(f"{recordings} has no recording of {family}; record the family there first.")
        check_manifest(folder)
        filed = read_sanitizers(folder / SANITIZERS)
        write_json(folder / SANITIZERS, filed | {name: merged(filed.get(name), one) for name, one in kernels.items()})
        write_manifest(folder)


def report(arguments: argparse.Namespace) -> int:
    """Print the outcome by tool, and everything that is not clean; 1 if there is any."""
    found = json.loads(arguments.out.read_text())["found"] if arguments.out.is_file() else {}
    if getattr(arguments, "record", None):
        record(found, arguments.record)
    tally = Counter((entry.rsplit(":", 1)[1], one["outcome"]) for entry, one in found.items())
    for (tool, outcome), number in sorted(tally.items()):
        print(f"{tool:9} {outcome:11} {number}")
    for entry, one in found.items():
        if one["outcome"] != CLEAN:
            print(f"{entry}: {one['outcome']}", *one["said"], sep="\n    ")
    return int(any(one["outcome"] != CLEAN for one in found.values()))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("--build", type=Path, default=ROOT / "results/build")
    running.add_argument("--out", type=Path, required=True, help="the outcome, in JSON; what it holds is not run again")
    running.add_argument("--seconds", type=float, default=1e9, help="end after so long")
    running.add_argument("--kernels", nargs="+", default=["*"], help="patterns of kernel ids")
    reporting = commands.add_parser("report")
    reporting.add_argument("--out", type=Path, required=True)
    reporting.add_argument("--record", type=Path, help="merge it into the recordings in this folder, a GPU's")
    launching = commands.add_parser("launch")
    launching.add_argument("--build", type=Path, required=True)
    launching.add_argument("targets", nargs="+", metavar="KERNEL:TOOLKIT:MxNxK")
    arguments = parser.parse_args()
    if arguments.command == "launch":
        return launch(arguments.targets, arguments.build)
    return run(arguments) if arguments.command == "run" else report(arguments)


if __name__ == "__main__":
    run_stage(main)
