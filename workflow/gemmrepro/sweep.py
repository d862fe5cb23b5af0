"""Measure one family: every kernel, toolkit, size and cache state, beside its baseline, in rounds spread over time.

    python -m gemmrepro.sweep --family ladder --config results/config.json --build results/build \\
        --gates results/gates --journal results/sweep/ladder --out results/measure/ladder

A round is a process of its own and visits every point once, in an order drawn anew, with fresh random inputs in freshly
allocated memory. The rounds' medians therefore hold what differs from time to time and from run to run, and a second
sweep agrees with the first within their intervals (see gemmrepro.stats). Each finished round of a point goes into
the journal, a folder of one small file each, written whole or not at all: a killed sweep continues where it stopped. An
entry counts only for the same binary (build key), GPU, driver, baseline and timing settings.

GEMM is timed as C = AB (alpha = 1, beta = 0). The baseline is a point of its own too, measured against itself: its
ratio must be 1, and how far its interval reaches is the noise of every other ratio.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import hashlib
import importlib.metadata
import io
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gemmrepro import baselines, counters, gpu, numeric, operands, recorded, registry, stats, timing, vector_gate
from gemmrepro.ceiling_gate import CEILING_BOUND
from gemmrepro.comparison import Verdict, compare, reference_gemm
from gemmrepro.cublas import WORKSPACE_BYTES
from gemmrepro.error_bounds import bound, underflow_allowance
from gemmrepro.errors import UserError, run_stage
from gemmrepro.files import ROOT, read_json, write_atomic, write_json
from gemmrepro.guarded import POISON_BITS
from gemmrepro.measurements import COUNTER_COLUMNS, SAMPLE_COLUMNS, SUMMARY_COLUMNS
from gemmrepro.operands import Operands, shape_of
from gemmrepro.registry import Kernel, Problem, Shape
from gemmrepro.tables import csv_text

PROTOCOL = 2
"""Raised when the meaning of a sample changes, so that journals of before do not mix with those of after."""
LIBRARY = "library"
UNFINISHED = 75
"""Exit code of a sweep whose time budget ended before its points (sysexits' EX_TEMPFAIL): run it again."""


@dataclass(frozen=True)
class Point:
    """One row of the summary. `toolkit` is "library" for a baseline's own point."""

    kernel: str
    toolkit: str
    problem: Problem
    shape: Shape
    cache: str
    baseline: str | None

    @property
    def subject(self) -> tuple[str, str, Problem, Shape]:
        """What is checked once for all cache states and rounds."""
        return self.kernel, self.toolkit, self.problem, self.shape

    def __str__(self) -> str:
        return f"{self.kernel} {self.toolkit} {self.problem.dtype_in} {self.shape} {self.cache}"

    def entry(self, *parts: str) -> str:
        """The name of its journal entry for `parts`: a cache state and a round, or the check."""
        return ".".join((self.kernel, self.toolkit, self.problem.dtype_in, str(self.shape), *parts))


# Journal --------------------------------------------------------------------------------------------------------------


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


class Journal:
    """Finished pieces of a sweep, one file each."""

    def __init__(self, folder: Path, machine: dict[str, str], say: Callable[[str], None]) -> None:
        """Open or begin a journal for `machine` (GPU and driver). One of another machine is set aside, and said so."""
        self.folder, self._say = Path(folder), say
        meta = self.folder / "machine.json"
        if meta.exists() or (self.folder.is_dir() and any(self.folder.iterdir())):
            try:
                found = json.loads(meta.read_text())
            except (OSError, ValueError):
                found = {"gpu": "an unknown GPU", "driver": "unknown"}
            if found != machine:
                number = 1
                while (aside := self.folder.with_name(f"{self.folder.name}.set-aside-{number}")).exists():
                    number += 1
                self.folder.rename(aside)
                say(
                    f"the journal {self.folder} belongs to {found.get('gpu')} with driver {found.get('driver')}, and "
                    f"this is {machine['gpu']} with {machine['driver']}; it was set aside as {aside.name} and a new "
                    "one begun"
                )
        if not meta.exists():
            write_json(meta, machine)

    def get(self, name: str, identity: dict[str, Any]) -> dict[str, Any] | None:
        """The payload of entry `name` if it is there, whole, and was made under `identity`; else None.

        A corrupt entry is reported and moved out of the way, so that only it is measured again.
        """
        path = self.folder / f"{name}.json"
        try:
            entry = json.loads(path.read_text())
            if entry["sha256"] != _digest([entry["identity"], entry["payload"]]):
                raise ValueError("its checksum does not fit its content")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._say(f"the journal entry {path.name} is corrupt ({error}); it is measured again")
            path.rename(path.with_suffix(".corrupt"))
            return None
        return entry["payload"] if entry["identity"] == identity else None

    def put(self, name: str, identity: dict[str, Any], payload: dict[str, Any]) -> None:
        """Add an entry; it is on the disk, whole, when this returns."""
        entry = {"identity": identity, "payload": payload, "sha256": _digest([identity, payload])}
        write_atomic(self.folder / f"{name}.json", json.dumps(entry) + "\n")


# Points ---------------------------------------------------------------------------------------------------------------


def not_timeable(kernel_id: str, toolkit: str, build_key: str, gates: Path) -> str | None:
    """Why this binary must not be timed, or None if it may be: only what passed its gate is ever timed.

    Raises:
        UserError: the gate's verdict is missing or corrupt.
    """
    gate = read_json(
        Path(gates) / f"{kernel_id}.json",
        "the gate's verdict",
        f"run the gates stage for {kernel_id} before the sweep",
    )
    try:
        verdict = gate["toolkits"].get(toolkit)
        if not gate["passed"]:
            return "its gate failed"
        if verdict is None:
            return f"it was not gated for {toolkit}"
        found = verdict["numeric"]
        if found["status"] != "passed":
            return f"its numerical gate says '{found['status']}'"
        if found["build_key"] != build_key:
            return f"its numerical gate judged build {found['build_key']}, and this is build {build_key}"
    except (KeyError, TypeError, AttributeError):
        raise UserError(f"the gate's verdict of {kernel_id} lacks a field; run the gates stage again.") from None
    return None


def plan_points(
    kernels: Sequence[Kernel],
    sizes: Sequence[int],
    toolkits: Sequence[str],
    caches: Sequence[str],
    refuse: Callable[[Kernel, str], str | None],
) -> tuple[list[Point], list[dict[str, str]]]:
    """Every point of a sweep, and what is left out with the reason.

    Args:
        refuse: why a kernel's binary of a toolkit must not be timed, or None.

    Returns:
        (points, each kernel's after those of smaller sizes; [{kernel, toolkit, reason}]).
    """
    points: list[Point] = []
    skipped: list[dict[str, str]] = []
    used: dict[tuple[str, Problem, Shape], None] = {}
    for kernel in kernels:
        for toolkit in (name for name in toolkits if name in kernel.toolkits):
            reason = refuse(kernel, toolkit)
            if reason:
                skipped.append({"kernel": kernel.id, "toolkit": toolkit, "reason": reason})
                continue
            for shape in dict.fromkeys(shape_of(kernel.op, size) for size in sizes):
                try:
                    kernel.check(shape)
                except UserError as error:
                    skipped.append({"kernel": kernel.id, "toolkit": toolkit, "reason": str(error)})
                    continue
                if kernel.timed_to and max(shape.m, shape.n, shape.k) > kernel.timed_to:
                    reason = f"a launch on {shape} takes seconds; it is timed up to {kernel.timed_to}"
                    skipped.append({"kernel": kernel.id, "toolkit": toolkit, "reason": reason})
                    continue
                points += [Point(kernel.id, toolkit, kernel.problem, shape, cache, kernel.baseline) for cache in caches]
                if kernel.baseline:
                    used.setdefault((kernel.baseline, kernel.problem, shape))
    for name, problem, shape in used:
        points += [Point(name, LIBRARY, problem, shape, cache, name) for cache in caches]
    points.sort(key=lambda point: sum(operands.counts(point.problem, point.shape)[0]))
    return points, skipped


def needed_bytes(problem: Problem, shape: Shape, l2_bytes: int) -> int:
    """Device memory that a point takes at most, in bytes: operands, their copies, the float64 reference, the flush."""
    size = operands.nbytes(problem, shape)
    copies = max(size, size + timing.EVICTION * l2_bytes)
    check = 0
    if problem.op == "gemm":
        # C* and its scale whole, and B twice in float64 for the block of rows at hand.
        block = min(shape.m, REFERENCE_ROWS)
        check = 16 * shape.m * shape.n + 16 * shape.k * shape.n + block * (16 * shape.k + 64 * shape.n)
    elif problem.op == "histogram":
        check = 3 * size  # the ids as 64 bits, once more than the ids
    elif problem.op != "ceiling_flops":
        check = size
    # Inputs are drawn in fp32 (fp64 in fp64), the largest last; bytes more pass while 8-bit floats are rounded.
    drawn = {"fp64": 8, "fp8_e4m3": 16, "fp8_e5m2": 16, "int32": 8}.get(problem.dtype_in, 4)
    drawn *= max(operands.counts(problem, shape)[0], default=0)
    workspaces = 2 * WORKSPACE_BYTES
    return max(copies, size + max(check, 2 * drawn)) + 2 * timing.EVICTION * l2_bytes + workspaces


def own_bytes(kernel: Kernel, shape: Shape) -> int:
    """Device memory that a kernel takes beside what its problem does: its workspace, and its `error` while it is judged
    with what that is made of.
    """
    judged = kernel.error_copies * operands.nbytes(kernel.problem, shape) if kernel.error else 0
    return kernel.workspace_bytes(shape) + judged


def check_memory(
    points: Iterable[Point], free: int, l2_bytes: int, name: str, kernels: Mapping[str, Kernel] | None = None
) -> None:
    """Refuse a sweep one of whose points does not fit, before anything is measured.

    `kernels` are those of the points, by id; a kernel's own memory is given back before the next one's is taken.

    Raises:
        UserError: names the largest such size, what it needs and what there is.
    """
    most: dict[tuple[Problem, Shape], int] = {}
    for point in reversed(list(points)):
        kernel, key = (kernels or {}).get(point.kernel), (point.problem, point.shape)
        most[key] = max(most.get(key, 0), own_bytes(kernel, point.shape) if kernel else 0)
    for (problem, shape), own in most.items():
        needed = needed_bytes(problem, shape, l2_bytes) + own
        if needed > free:
            raise UserError(
                f"{problem} at {shape} needs {needed} bytes of GPU memory and the {name} has {free} free; take that "
                "size out of sweep.sizes, or free the GPU."
            )


# Measuring ------------------------------------------------------------------------------------------------------------

REFERENCE_ROWS = 1024


class Workspace:
    """The operands of one problem in one round, and its reference while a check needs it."""

    def __init__(self, session: gpu.Session, problem: Problem, shape: Shape, seed: int) -> None:
        import cupy

        self.problem, self.shape = problem, shape
        cupy.get_default_memory_pool().free_all_blocks()
        # Where the buffers land differs from round to round, as it does from run to run.
        spacer = cupy.empty(random.Random(seed).randrange(1, 64) << 20, dtype=cupy.uint8)
        self._inputs, self._output = operands.random(problem, shape, seed)
        self._copies: list[tuple[list[Any], Any]] = [(self._inputs, self._output)]
        self._reference: tuple[Any, Any] | None = None
        del spacer

    def operands(self, kernel: Kernel | None, index: int = 0) -> Operands:
        """Operands for `kernel` (None: for a baseline) on copy `index`."""
        inputs, output = self._copies[index]
        if kernel is None:
            return Operands(self.problem, self.shape, tuple(inputs), output)
        return Operands.of(kernel, self.shape, inputs, output)

    def copies(self, l2_bytes: int) -> int:
        """Make as many copies of the operands as rotation needs, and return their number."""
        wanted = timing.rotation_sets(operands.nbytes(self.problem, self.shape), l2_bytes)
        while len(self._copies) < wanted:
            self._copies.append(([array.copy() for array in self._inputs], self._output.copy()))
        return wanted

    def check(self, call: Callable[[], None], timer: timing.Timer, kernel: Kernel | None = None) -> dict[str, Any]:
        """Run once into poisoned memory, judge the result, and time the launch.

        Args:
            kernel: whose result it is, where that is no library's.

        Returns:
            {passed, message, err_scaled_max, err_fro, first_us, estimate_us}.
        """
        bits = operands.bits(self._output)
        bits[...] = poison = POISON_BITS[self._output.dtype.itemsize]
        first = timer.once(call)
        if self.problem.op == "gemm":
            verdict = self._judge_gemm(kernel)
        elif self.problem.op == "ceiling_flops":
            # A loop that writes its sum at all writes a small one, unless its values left all bounds.
            bounded = bool((bits == poison).all()) or abs(float(self._output[0])) < CEILING_BOUND
            verdict = Verdict(bounded, None, None, "" if bounded else "the loop left its bounds")
        elif self.problem.op in operands.VECTORS:
            verdict = vector_gate.judge(self.problem, self.shape, self._inputs[0], self._output)
        else:
            expected = self._inputs[0] if len(self._inputs) == 1 else self._inputs[0] + self._inputs[1]
            wrong = int((bits != operands.bits(expected)).sum())
            verdict = Verdict(
                not wrong,
                0.0 if not wrong else None,
                0.0 if not wrong else None,
                f"{wrong} elements are wrong" * bool(wrong),
            )
        estimate = timer.estimate(call, first) if verdict.passed else first
        return {
            "passed": verdict.passed,
            "message": verdict.message,
            "err_scaled_max": verdict.err_scaled_max,
            "err_fro": verdict.err_fro,
            "estimate_us": estimate,
        }

    def _judge_gemm(self, kernel: Kernel | None) -> Verdict:
        import cupy

        m, n, k = self.shape.m, self.shape.n, self.shape.k
        problem = self.problem
        a, b = (
            array.reshape(size)
            for array, size in zip(self._inputs, operands.matrices(problem, self.shape)[0], strict=True)
        )
        b = b.T if problem.layout == "row,col,row" else b
        if self._reference is None:
            wide_b = operands.widen(b, problem.dtype_in)
            whole = cupy.empty((2, m, n), dtype=cupy.float64)
            for start in range(0, m, REFERENCE_ROWS):
                rows = slice(start, start + REFERENCE_ROWS)
                wide_a = operands.widen(a[rows], problem.dtype_in)
                whole[0, rows], whole[1, rows] = reference_gemm(wide_a, wide_b, 1.0, 0.0, None, cupy)
            self._reference = (whole[0], whole[1])
            del wide_a, wide_b
        return compare(
            self._output.reshape(m, n),
            *self._reference,
            bound(problem, k),
            dtype=problem.dtype_out,
            underflow=underflow_allowance(k, 1.0, problem.dtype_out),
            # A scheme of its own errs on FP64 operands alone, which are stored as they are.
            scheme=kernel.error(a, b, cupy) if kernel is not None and kernel.error else 0.0,
            rows=REFERENCE_ROWS,
        )

    def forget_reference(self) -> None:
        """Free the reference; the timing that follows needs the memory of its copies."""
        self._reference = None


class Sweep:
    """One run of the sweep of one family on one open GPU."""

    def __init__(
        self,
        session: gpu.Session,
        family: str,
        settings: dict[str, Any],
        build: Path,
        gates: Path,
        journal: Path,
        say: Callable[[str], None],
        only: int | None = None,
    ) -> None:
        """Plan a sweep; `only` names the one round that this process measures."""
        self.only = only
        self.session, self.family, self.settings, self.build, self._say = session, family, settings, Path(build), say
        self.kernels = {kernel.id: kernel for kernel in registry.kernels(family) if kernel.timed}
        self._loaded: dict[tuple[str, str], gpu.Loaded] = {}
        self.points, self.skipped = plan_points(
            list(self.kernels.values()),
            settings["sizes"].get(family, []),
            settings["toolkits"],
            settings["caches"],
            lambda kernel, toolkit: self._refusal(kernel, toolkit, gates),
        )
        for entry in self.skipped if only is None else ():
            say(f"not timed: {entry['kernel']} {entry['toolkit']}: {entry['reason']}")
        self.versions = {
            name: baselines.baseline(name).version(session)
            for name in dict.fromkeys(point.baseline for point in self.points)
            if name
        }
        if only is None:
            check_memory(self.points, session.free_bytes(), session.gpu.l2_bytes, session.gpu.name, self.kernels)
        self.machine = {"gpu": session.gpu.name, "driver": session.gpu.driver}
        self.journal = Journal(journal, self.machine, say)
        self.plan = timing.Plan(settings["interval"], settings["seconds_per_round"], *settings["samples_per_round"])
        # What a round spends on a point and its baseline, twice over: no more than that on choosing the baseline's way.
        baselines.limit_trials(2 * settings["seconds_per_round"])

    def _refusal(self, kernel: Kernel, toolkit: str, gates: Path) -> str | None:
        if kernel.targets and not (self.build / toolkit / f"{kernel.id}.json").is_file():
            return f"it is written for sm_{', sm_'.join(kernel.targets)} alone, and was not built"
        record = gpu.build_record(kernel, self.build, toolkit)
        reason = not_timeable(kernel.id, toolkit, record["build_key"], gates)
        if reason is None:
            try:
                self._loaded[kernel.id, toolkit] = gpu.Loaded(self.session, kernel, self.build, toolkit)
            except UserError as error:
                reason = str(error)
        return reason

    def build_key(self, point: Point) -> str:
        """The binary's build key, or the library's version."""
        return self.versions[point.kernel] if point.toolkit == LIBRARY else self._loaded[point.subject[:2]].build_key

    def identity(self, point: Point) -> dict[str, Any]:
        """All that must be the same for a journal entry to count."""
        timing_settings = {key: self.settings[key] for key in ("interval", "seconds_per_round", "samples_per_round")}
        return {
            **self.machine,
            "build_key": self.build_key(point),
            "baseline": self.versions.get(point.baseline or "", ""),
            "timing": {**timing_settings, "protocol": PROTOCOL},
        }

    def _check_identity(self, point: Point) -> dict[str, Any]:
        return {**self.machine, "build_key": self.build_key(point), "protocol": PROTOCOL}

    def checked(self, point: Point) -> dict[str, Any] | None:
        """The journal's record of the checked execution of `point`'s subject, if there is one."""
        return self.journal.get(point.entry("check"), self._check_identity(point))

    def finished(self, point: Point, number: int) -> dict[str, Any] | None:
        """The journal's record of round `number` of `point`, if there is one."""
        return self.journal.get(point.entry(point.cache, f"r{number}"), self.identity(point))

    def _bind(self, point: Point, workspace: Workspace, index: int = 0) -> Callable[[], None]:
        if point.toolkit == LIBRARY:
            return baselines.baseline(point.kernel).bind(self.session, workspace.operands(None, index))
        kernel = self.kernels[point.kernel]
        return self._loaded[kernel.id, point.toolkit].bind(workspace.operands(kernel, index))

    def _ensure_checked(self, point: Point, workspace: Workspace, timer: timing.Timer) -> dict[str, Any]:
        found = self.checked(point)
        if found is None:
            found = workspace.check(self._bind(point, workspace), timer, self.kernels.get(point.kernel))
            if point.toolkit == LIBRARY:
                found["way"] = baselines.way(self.session, point.problem, point.shape, point.kernel)
            self.journal.put(point.entry("check"), self._check_identity(point), found)
            if not found["passed"]:
                self._say(f"not timed: {point.kernel} {point.toolkit} at {point.shape} is wrong: {found['message']}")
        elif found.get("way") is not None:
            baselines.take_way(self.session, point.problem, point.shape, found["way"], point.kernel)
        return found

    def todo(self) -> list[tuple[int, Point]]:
        """(round, point) of all that the journal lacks, a subject whose check failed left out."""
        return [
            (number, point)
            for number in range(self.settings["rounds"])
            for point in self.points
            if self.finished(point, number) is None and (self.checked(point) or {"passed": True})["passed"]
        ]

    def run(self, deadline: float | None) -> bool:
        """Measure what the journal lacks. Returns whether all of it is there now; False once `deadline` has passed."""
        todo = self.todo()
        total = len(self.points) * self.settings["rounds"]
        done = total - len(todo)
        if self.only is not None:
            todo = [(number, point) for number, point in todo if number == self.only]
        if not todo:
            return True
        if self.session.other_processes():
            self._say("another process has this GPU open; if it computes, that will show in these times")
        timer = timing.Timer(self.session)
        for number in dict.fromkeys(number for number, _ in todo):
            groups: dict[tuple[Problem, Shape], list[Point]] = {}
            for wanted, point in todo:
                if wanted == number:
                    groups.setdefault((point.problem, point.shape), []).append(point)
            for (problem, shape), members in groups.items():
                if deadline is not None and time.monotonic() > deadline:
                    return False
                finished = self._run_group(number, problem, shape, members, timer, deadline, (done, total))
                if finished is None:
                    return False
                done += finished
        return True

    def _run_group(
        self,
        number: int,
        problem: Problem,
        shape: Shape,
        members: list[Point],
        timer: timing.Timer,
        deadline: float | None,
        progress: tuple[int, int],
    ) -> int | None:
        """Round `number` of the points that share a problem. Returns how many, or None where the deadline passed."""
        workspace = Workspace(self.session, problem, shape, numeric.fresh_seeds(1)[0])
        checks = {point.subject: self._ensure_checked(point, workspace, timer) for point in members}
        own = {
            name: self._ensure_checked(Point(name, LIBRARY, problem, shape, "", name), workspace, timer)
            for name in dict.fromkeys(point.baseline for point in members)
            if name
        }
        workspace.forget_reference()
        random.Random(self.session.gpu.pci_bus + str(time.time_ns())).shuffle(members)
        done, total = progress
        for count, point in enumerate(members, 1):
            if deadline is not None and time.monotonic() > deadline:
                return None
            check = checks[point.subject]
            base = own[point.baseline] if point.baseline else None
            if not check["passed"] or (base is not None and not base["passed"]):
                continue
            estimates = (check["estimate_us"], base["estimate_us"] if base else None)
            own_kernel = self.kernels.get(point.kernel)
            graphs = timing.wants_graphs(*estimates) and (own_kernel is None or own_kernel.capturable)
            copies = workspace.copies(self.session.gpu.l2_bytes) if graphs and point.cache == "cold" else 1
            sides = [self._bind(point, workspace, index) for index in range(copies)]
            against = None
            if point.baseline:
                partner = Point(point.baseline, LIBRARY, problem, shape, point.cache, point.baseline)
                against = [self._bind(partner, workspace, index) for index in range(copies)]
            start = time.monotonic()
            burst = timer.burst(sides, against, point.cache, self.plan, estimates, graphs)
            del sides, against  # and with them a kernel's workspace
            self.journal.put(
                point.entry(point.cache, f"r{number}"),
                self.identity(point),
                {
                    "times": [round(value, 4) for value in burst.times],
                    "baseline": [round(value, 4) for value in burst.baseline],
                    "sensors": burst.sensors,
                    "mode": burst.mode,
                },
            )
            middle = stats.median_interval(burst.times)
            ratio = f" ratio {float(np.median(np.divide(burst.baseline, burst.times))):.4g}" if burst.baseline else ""
            self._say(
                f"[{done + count:{len(str(total))}}/{total}] round {number + 1} {point!s:44} {middle.value:11.2f} µs "
                f"±{50 * middle.relative_width:.2f}%{ratio}  {len(burst.times)} samples, "
                f"{time.monotonic() - start:.2f} s, {burst.mode}"
            )
        return len(members)

    # Results ----------------------------------------------------------------------------------------------------------

    def results(self) -> list[tuple[Point, list[tuple[int, dict[str, Any]]]]]:
        """What the journal holds of every point: [(point, [(round, record)])], points without any left out."""
        found = []
        for point in self.points:
            rounds = [
                (number, record)
                for number in range(self.settings["rounds"])
                if (record := self.finished(point, number)) is not None
            ]
            if rounds:
                found.append((point, rounds))
        return found

    def row(self, point: Point, rounds: list[tuple[int, dict[str, Any]]]) -> dict[str, Any]:
        """The summary row of a point."""
        kernel = self.kernels.get(point.kernel)
        label = kernel or next(
            other for other in self.kernels.values() if (other.baseline, other.problem) == (point.kernel, point.problem)
        )
        flops, moved = operands.work(label, point.shape)
        times = [record["times"] for _, record in rounds]
        check = self.checked(point) or {}
        tick = stats.resolution(np.concatenate(times))
        level = stats.rounds_interval(times, tick=tick, repeatability=stats.REPEATABILITY)
        row: dict[str, Any] = {
            "kernel": point.kernel,
            "family": self.family,
            "rung": kernel.rung if kernel else baselines.baseline(point.kernel).rung,
            "dtype": point.problem.dtype_in,
            "m": point.shape.m,
            "n": point.shape.n,
            "k": point.shape.k,
            "d": kernel.d if kernel else None,
            "cache": point.cache,
            "toolkit": point.toolkit,
            "arch": self._loaded[kernel.id, point.toolkit].arch if kernel else self.session.gpu.arch,
            "median_us": level.value,
            "ci_low_us": level.low,
            "ci_high_us": level.high,
            "samples": sum(map(len, times)),
            "rounds": len(times),
            "tflops": flops / level.value * 1e-6 if flops else None,
            "gbps": moved / level.value * 1e-3 if moved else None,
            "err_scaled_max": check.get("err_scaled_max"),
            "err_fro": check.get("err_fro"),
            "build_key": self.build_key(point),
            "status": "current",
            **timing.summarize_sensors([reading for _, record in rounds for reading in record["sensors"]]),
        }
        if point.baseline:
            under = [record["baseline"] for _, record in rounds]
            ratio = stats.ratio_interval(under, times, ticks=(stats.resolution(np.concatenate(under)), tick))
            row |= {
                "baseline": point.baseline,
                "baseline_median_us": stats.rounds_interval(under).value,
                "ratio": ratio.value,
                "ratio_ci_low": ratio.low,
                "ratio_ci_high": ratio.high,
            }
        return row

    def _d(self, point: Point) -> Any:
        """The `d` of a point's kernel, or what pandas writes where there is none."""
        import pandas as pd

        kernel = self.kernels.get(point.kernel)
        return pd.NA if kernel is None or kernel.d is None else kernel.d

    def write(self, out: Path, profile: bool = True) -> None:
        """Write summary.csv, samples.parquet and run.json from the journal into `out`.

        `profile` says whether to ask for the names of the baselines' GPU kernels, which takes some seconds once.
        """
        import pandas as pd

        out = Path(out)
        results = self.results()
        write_atomic(out / "summary.csv", csv_text([self.row(*result) for result in results], SUMMARY_COLUMNS))
        frames = []
        for point, rounds in results:
            for number, record in rounds:
                frames.append(
                    pd.DataFrame(
                        {
                            "kernel": point.kernel,
                            "toolkit": point.toolkit,
                            "dtype": point.problem.dtype_in,
                            "m": point.shape.m,
                            "n": point.shape.n,
                            "k": point.shape.k,
                            "d": pd.array([self._d(point)] * len(record["times"]), dtype="Int64"),
                            "cache": point.cache,
                            "round": number,
                            "index": range(len(record["times"])),
                            "time_us": record["times"],
                            "baseline_us": record["baseline"] or math.nan,
                            "build_key": self.build_key(point),
                        }
                    )
                )
        samples = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=SAMPLE_COLUMNS)
        buffer = io.BytesIO()
        samples[SAMPLE_COLUMNS].to_parquet(buffer, index=False, compression="zstd")
        write_atomic(out / "samples.parquet", buffer.getvalue())
        modes: dict[str, list[str]] = {}
        for point, rounds in results:
            modes.setdefault(rounds[0][1]["mode"], []).append(str(point))
        write_json(
            out / "run.json",
            {
                "source": "live",
                "gpu": self.session.gpu.describe(),
                "libraries": libraries(self.versions),
                "toolkits": {
                    toolkit: gpu.build_record(self.kernels[kernel], self.build, toolkit)["toolkit_version"]
                    for kernel, toolkit in self._loaded
                },
                "baseline_kernels": self._baseline_kernels() if profile else {},
                "git_commit": git_commit(),
                "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "config": self.settings,
                "skipped": self.skipped + self.wrong(),
                "timing_modes": modes,
            },
        )

    def wrong(self) -> list[dict[str, str]]:
        """What was not timed because its checked execution at that size was wrong: [{kernel, toolkit, reason}]."""
        checks = {point.subject: self.checked(point) or {"passed": True} for point in self.points}
        return [
            {"kernel": kernel, "toolkit": toolkit, "reason": f"wrong at {shape}: {check['message']}"}
            for (kernel, toolkit, _, shape), check in checks.items()
            if not check["passed"]
        ]

    def _baseline_kernels(self) -> dict[str, str]:
        """Names of the GPU kernels behind the baselines, from the journal or by asking the profiler once."""
        library = [point for point in self.points if point.toolkit == LIBRARY]
        wanted = list(dict.fromkeys((point.kernel, point.problem, point.shape.n) for point in library))
        named = [[name, str(problem), size] for name, problem, size in wanted]
        identity = {**self.machine, "versions": self.versions, "wanted": named}
        found = self.journal.get("baseline-kernels", identity)
        if found is None:
            found = baselines.gpu_kernel_names(wanted)
            self.journal.put("baseline-kernels", identity, found)
        return found

    def count(self, out: Path) -> None:
        """Read the hardware counters at the sizes of ``counters`` and write counters.csv into `out`."""
        sizes = (self.settings.get("counters") or {}).get(self.family, [])
        targets = [
            (point.kernel, point.toolkit, point.shape)
            for point in dict.fromkeys(
                Point(
                    kernel,
                    toolkit,
                    self.kernels[kernel].problem,
                    shape_of(self.kernels[kernel].op, size),
                    "",
                    None,
                )
                for kernel, toolkit in self._loaded
                for size in sizes
            )
            if self.kernels[point.kernel].takes(point.shape)
        ]
        keys = {f"{kernel} {toolkit}": loaded.build_key for (kernel, toolkit), loaded in self._loaded.items()}
        identity = {**self.machine, "keys": keys, "targets": [[*target[:2], str(target[2])] for target in targets]}
        found = self.journal.get("counters", identity)
        if found is None:
            rows, reason = counters.collect(targets, self.build)
            if reason:
                self._say(f"no hardware counters: {reason}")
            found = {"rows": rows}
            if not reason:
                self.journal.put("counters", identity, found)
        write_atomic(Path(out) / "counters.csv", csv_text(found["rows"], COUNTER_COLUMNS))


def libraries(versions: dict[str, str]) -> dict[str, str]:
    """Versions of what took part: the baselines' libraries and the Python packages."""
    found = {text.rsplit(" ", 1)[0]: text.rsplit(" ", 1)[1] for text in versions.values()}
    names = ("cupy-cuda13x", "cupy-cuda12x", "cuda-core", "cuda-bindings", "numpy", "pandas", "nvidia-ml-py", "torch")
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_commit() -> str | None:
    """The commit of the working tree, with "+changes" where files differ from it.

    Where git does not know the tree, what the environment variable GEMMREPRO_COMMIT says; else None.
    """
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
        state = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("GEMMREPRO_COMMIT") or None
    return head.stdout.strip() + ("+changes" if state.stdout.strip() else "")


def end_with_parent() -> None:
    """Have the kernel end this process when its parent ends, even by SIGKILL: nobody would be left to stop it."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG, linux/prctl.h
    if os.getppid() == 1:
        sys.exit(1)


def run_round(arguments: argparse.Namespace, number: int, deadline: float | None) -> int:
    """Measure round `number` in a process of its own; returns its exit code."""
    command = [sys.executable, "-m", "gemmrepro.sweep", "--round", str(number)]
    for name in ("family", "config", "build", "gates", "journal", "out"):
        command += [f"--{name}", str(getattr(arguments, name))]
    if deadline is not None:
        command += ["--budget", f"{max(0.0, deadline - time.monotonic()):.1f}"]
    return subprocess.run(command).returncode


def say(text: str) -> None:
    """A line of progress, on stderr."""
    print(f"sweep: {text}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gemmrepro.sweep", description=__doc__.split("\n")[0])
    parser.add_argument("--family", required=True)
    parser.add_argument("--config", type=Path, required=True, help="the validated configuration, as JSON")
    parser.add_argument("--build", type=Path, default=Path("results/build"))
    parser.add_argument("--gates", type=Path, default=Path("results/gates"))
    parser.add_argument("--journal", type=Path, required=True, help="folder of finished points; kept between runs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=float, help=f"stop after this many seconds, with exit code {UNFINISHED}")
    parser.add_argument("--round", type=int, help="measure only this round, in this process, and write nothing else")
    parser.add_argument("--no-profile", action="store_true", help="do not look up which GPU kernels the baselines run")
    parser.add_argument("--partial", action="store_true", help="write the results of an unfinished sweep too")
    arguments = parser.parse_args()
    start = time.monotonic()
    registry.family(arguments.family)
    if not any(kernel.timed for kernel in registry.kernels(arguments.family)):
        recorded.write_nothing(arguments.out)
        say(f"{arguments.family}: only experiments run its kernels")
        return 0
    config = read_json(arguments.config, "the configuration", "let the workflow write it, or see its schema")
    deadline = None if arguments.budget is None else start + arguments.budget

    def plan(session: gpu.Session) -> Sweep:
        paths = (arguments.build, arguments.gates, arguments.journal)
        return Sweep(session, arguments.family, config["sweep"], *paths, say, arguments.round)

    if arguments.round is not None:
        end_with_parent()
        return 0 if plan(gpu.open_gpu()).run(deadline) else UNFINISHED
    session = gpu.open_gpu()
    with gpu.exclusive(session):
        sweep = plan(session)
        todo = sweep.todo()
        total = len(sweep.points) * sweep.settings["rounds"]
        if len(todo) < total:
            say(f"{total - len(todo)} of {total} rounds of points are in the journal already")
        complete = True
        for number in dict.fromkeys(number for number, _ in todo):
            code = run_round(arguments, number, deadline)
            if code not in (0, UNFINISHED):
                return code
            complete = code == 0
            if not complete:
                break
        if complete or arguments.partial:
            sweep.write(arguments.out, not arguments.no_profile)
            sweep.count(arguments.out)
    if not complete:
        say(f"stopped after {time.monotonic() - start:.0f} s with points left; run the same command again to continue")
        return UNFINISHED
    say(f"{arguments.family}: done in {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    run_stage(main)
