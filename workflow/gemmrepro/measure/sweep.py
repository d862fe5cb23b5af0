"""Measure one family: every kernel, toolkit, size and cache state, beside its baseline, in rounds spread over time.

    python -m gemmrepro.measure.sweep --family ladder --config results/config.json --build results/build \\
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
import datetime
import io
import math
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gemmrepro import operands, registry, stats, timing
from gemmrepro.build.record import build_record
from gemmrepro.core.files import read_json, write_atomic, write_json
from gemmrepro.core.journal import UNFINISHED, Journal, end_with_parent, fresh_seeds, say
from gemmrepro.core.names import LIBRARY
from gemmrepro.core.provenance import git_commit, libraries
from gemmrepro.core.tables import csv_text
from gemmrepro.errors import UserError, run_stage
from gemmrepro.gpu import baselines, device, lock
from gemmrepro.gpu.loaded import Loaded
from gemmrepro.measure import counters
from gemmrepro.measure.columns import COUNTER_COLUMNS, SAMPLE_COLUMNS, SUMMARY_COLUMNS
from gemmrepro.measure.plan import PROTOCOL, Point, check_memory, not_timeable, plan_points
from gemmrepro.measure.recording import write_nothing
from gemmrepro.measure.workspace import Workspace
from gemmrepro.operations import Problem, Shape, shape_of
from gemmrepro.registry import Kernel


class Sweep:
    """One run of the sweep of one family on one open GPU."""

    def __init__(
        self,
        session: device.Session,
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
        self._loaded: dict[tuple[str, str], Loaded] = {}
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
        # Choosing the baseline's algorithm takes no longer than a round of a point and its baseline.
        session.trials.limit(2 * settings["seconds_per_round"])

    def _refusal(self, kernel: Kernel, toolkit: str, gates: Path) -> str | None:
        if kernel.targets and not (self.build / toolkit / f"{kernel.id}.json").is_file():
            return f"it is written for sm_{', sm_'.join(kernel.targets)} alone, and was not built"
        record = build_record(kernel, self.build, toolkit)
        reason = not_timeable(kernel.id, toolkit, record["build_key"], gates)
        if reason is None:
            try:
                self._loaded[kernel.id, toolkit] = Loaded.built(self.session, kernel, self.build, toolkit)
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
                found["way"] = self.session.trials.algorithm(point.problem, point.shape, point.kernel)
            self.journal.put(point.entry("check"), self._check_identity(point), found)
            if not found["passed"]:
                self._say(f"not timed: {point.kernel} {point.toolkit} at {point.shape} is wrong: {found['message']}")
        elif found.get("way") is not None:
            self.session.trials.take(point.problem, point.shape, found["way"], point.kernel)
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
        workspace = Workspace(self.session, problem, shape, fresh_seeds(1)[0])
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
                    toolkit: build_record(self.kernels[kernel], self.build, toolkit)["toolkit_version"]
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
        wanted = list(dict.fromkeys((point.kernel, point.problem, point.shape) for point in library))
        named = [[name, str(problem), shape.n] for name, problem, shape in wanted]
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


def run_round(arguments: argparse.Namespace, number: int, deadline: float | None) -> int:
    """Measure round `number` in a process of its own; returns its exit code."""
    command = [sys.executable, "-m", "gemmrepro.measure.sweep", "--round", str(number)]
    for name in ("family", "config", "build", "gates", "journal", "out"):
        command += [f"--{name}", str(getattr(arguments, name))]
    if deadline is not None:
        command += ["--budget", f"{max(0.0, deadline - time.monotonic()):.1f}"]
    return subprocess.run(command).returncode


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gemmrepro.measure.sweep", description=__doc__.split("\n")[0])
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
        write_nothing(arguments.out)
        say(f"{arguments.family}: only experiments run its kernels")
        return 0
    config = read_json(arguments.config, "the configuration", "let the workflow write it, or see its schema")
    deadline = None if arguments.budget is None else start + arguments.budget

    def plan(session: device.Session) -> Sweep:
        paths = (arguments.build, arguments.gates, arguments.journal)
        return Sweep(session, arguments.family, config["sweep"], *paths, say, arguments.round)

    if arguments.round is not None:
        end_with_parent()
        return 0 if plan(device.open_gpu()).run(deadline) else UNFINISHED
    session = device.open_gpu()
    with lock.exclusive(session):
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
