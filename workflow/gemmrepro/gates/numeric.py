"""The numerical gate: is a kernel's result as accurate as its arithmetic allows?

Every element of C = alpha A B + beta C0 must be within the bound of `gates.bounds` of the same expression in float64;
where that bound is coarse, small integers must also give C* rounded to nearest, bit for bit. Outputs are poisoned with
NaN before every launch, arrays lie between guard bands of NaN, inputs must stay unchanged, and launches on the same
input must agree bit for bit (a difference is a race).

    python -m gemmrepro judge-numbers --kernels ladder.naive --build results/build --seeds 2 \\
        --out results/gates/numeric/ladder.naive.json
    python -m gemmrepro judge-numbers --family ladder --build results/build --seeds 2 --out-dir results/gates/numeric
    python -m gemmrepro judge-numbers --kernels ladder.naive=cuda12 ladder.smem=cuda12,cuda13 ...

Without toolkits every binary that was built is judged; with an empty list (``ladder.smem=``) none.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self

from gemmrepro import registry
from gemmrepro.build import record
from gemmrepro.core.files import read_json, write_json
from gemmrepro.core.journal import fresh_seeds
from gemmrepro.core.machine import free_memory
from gemmrepro.errors import UserError, shortage
from gemmrepro.gates.operations import Gates, Memory, allowed, gate_key, needed_memory
from gemmrepro.gpu import device
from gemmrepro.gpu.device import Session
from gemmrepro.gpu.loaded import Loaded
from gemmrepro.gpu.own import Bound
from gemmrepro.operands import Operands
from gemmrepro.registry import Kernel, card


def judge(
    session: Session, loaded: Loaded | Bound, seeds: Sequence[int], gates: Gates | None = None, entry: str = ""
) -> dict[str, Any]:
    """The gate's verdict on one loaded binary, or on one `entry` point: an entry of ``toolkits`` in the gate's JSON."""
    kernel = loaded.kernel
    gate_of_kernel = (gates or Gates()).of(kernel.compute.op)
    records, failures = [], []
    try:
        for part in kernel.parts:
            if entry and part.code.entry != entry:
                continue
            named = {"entry": part.code.entry} if kernel.run.variants else {}

            def launch(operands: Operands, part: Kernel = part) -> None:
                loaded.bind(operands, part)()

            for judged in gate_of_kernel.cases(session, part, launch, seeds):
                records.append({**judged.record(), **named})
                if not judged.verdict.passed:
                    case = f"{judged.case.shape} {judged.case.inputs}: {judged.verdict.message}"
                    failures.append(" ".join([*named.values(), case]))
        reason = f"{len(failures)} of {len(records)} cases failed; {failures[0]}" if failures else ""
    except UserError as error:
        # A launch that corrupts the GPU's context ends this kernel's gate, with a verdict.
        failures.append(str(error))
        reason = str(error)
    except Exception as error:
        reason = shortage(error)
        if not reason:
            raise
        return {"status": "not run", **keys_of(kernel, loaded.build_key), "reason": reason, "cases": []}
    return {
        "status": "failed" if failures else "passed",
        **keys_of(loaded.kernel, loaded.build_key),
        "reason": reason,
        "cases": records,
    }


def keys_of(kernel: Kernel, build_key: str) -> dict[str, str]:
    """The keys that a verdict on this binary is filed under."""
    return {"build_key": build_key, "gate_key": gate_key(kernel, build_key)}


PATIENCE = 120.0
"""Time limit of a binary's entry point in seconds, when several kernels are judged."""

WORKER = (sys.executable, "-m", "gemmrepro", "judge-numbers", "--worker")
"""The command of a process that reads what to judge from its standard input, one a line, and says what it judged."""

BROKEN = 74
"""Exit code of a process whose GPU context a kernel corrupted (EX_IOERR of sysexits.h)."""


@dataclass(frozen=True)
class Wanted:
    """A kernel to judge, and the toolkits whose binaries are judged: all entry points, or the one named."""

    kernel: Kernel
    toolkits: tuple[str, ...]
    entry: str = ""

    @classmethod
    def parse(cls, text: str) -> Wanted:
        """From ``kernel``, all that it is built by, ``kernel=toolkit,toolkit`` or ``kernel=toolkit=entry``.
        Raises UserError for an unknown kernel or toolkit."""
        name, chosen, rest = text.partition("=")
        listed, _, entry = rest.partition("=")
        kernel = registry.kernel(name)
        known = kernel.platform.toolkits
        toolkits = tuple(toolkit for toolkit in listed.split(",") if toolkit) if chosen else known
        if unknown := [toolkit for toolkit in toolkits if toolkit not in known]:
            raise UserError(f"{name} is not built by {unknown[0]}; choose among {', '.join(known)}.")
        return cls(kernel, toolkits, entry)

    @property
    def id(self) -> str:
        return self.kernel.id

    def __str__(self) -> str:
        return f"{self.id}={','.join(self.toolkits)}" + (f"={self.entry}" if self.entry else "")

    def by_entry(self, build: Path) -> list[Wanted]:
        """This kernel with one toolkit and entry point each; as it is where nothing was built or is wanted."""
        entries = [part.code.entry for part in self.kernel.parts] if self.kernel.run.variants else [""]
        return [Wanted(self.kernel, (name,), entry) for name in self.built(build) for entry in entries] or [self]

    def built(self, build: Path) -> Iterator[str]:
        return (name for name in self.toolkits if (Path(build) / name / f"{self.id}.json").is_file())


def gate(
    session: Session, wanted: Wanted, build: Path, seeds: Sequence[int], gates: Gates | None = None
) -> dict[str, Any]:
    """Judge those of the wanted binaries that are in `build`."""
    kernel = wanted.kernel
    toolkits: dict[str, Any] = {}
    for toolkit in wanted.built(build):
        key = record.read_build(kernel, build, toolkit).build_key
        try:
            loaded = Loaded.built(session, kernel, build, toolkit)
        except UserError as error:
            toolkits[toolkit] = {"status": "not run", **keys_of(kernel, key), "reason": str(error), "cases": []}
            continue
        toolkits[toolkit] = judge(session, loaded, seeds, gates, wanted.entry)
    if wanted.toolkits and not toolkits:
        raise UserError(f"there is no build of {kernel.id} in {build}; run the build stage first.")
    return {"kernel": kernel.id, **_machine(session.gpu.describe()), "toolkits": toolkits}


def _machine(gpu: Mapping[str, Any]) -> dict[str, Any]:
    """A verdict's facts on the card that gave it: its names, and all that launches depend on."""
    return {"gpu": gpu["name"], **{name: gpu[name] for name in ("driver", "sm_count", "power_cap_w")}}


def summary_line(result: dict[str, Any]) -> str:
    parts = []
    for toolkit, verdict in result["toolkits"].items():
        kernel = registry.kernel(result["kernel"])
        judged_by = "judged by the scheme's own bound"
        if kernel.promises.error is None:
            shares = [
                case["err_scaled_max"] / limit
                for case in verdict["cases"]
                if case["err_scaled_max"] is not None and (limit := allowed(kernel, case["gamma"]))
            ]
            judged_by = f"worst {100 * max(shares, default=0.0):5.1f}% of the bound"
        parts.append(f"{toolkit} {verdict['status']:7} {len(verdict['cases']):3} cases, {judged_by}")
        if verdict["reason"]:
            parts.append(verdict["reason"])
    return f"{result['kernel']:24} " + " | ".join(parts)


def judge_side_by_side(
    wanted: Sequence[Wanted], build: Path, seeds: Sequence[int], out: Path, patience: float, processes: int
) -> None:
    """Judge kernels in several processes at once, and write one verdict per kernel to `out` when it is complete.
    A process takes the next entry point when it has judged one. It keeps the references of recent cases, which
    neighbours share. Kernels with most entry points come first: each of them takes long cases."""
    for each in wanted:
        (out / f"{each.id}.json").unlink(missing_ok=True)
    units_of = {each.id: each.by_entry(build) for each in wanted}
    units = [unit for found in units_of.values() for unit in found]
    workers = max(1, min(processes, len(units)))
    queue: SimpleQueue[Wanted | None] = SimpleQueue()
    for unit in [*sorted(units, key=lambda unit: -len(unit.kernel.parts)), *[None] * workers]:
        queue.put(unit)
    judged: set[str] = set()
    room = Memory(device.free_memory(), free_memory())
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".parts-") as folder:
        parts = Path(folder)

        def work(_: int) -> None:
            with Worker(build, seeds, parts, patience) as worker:
                for unit in iter(queue.get, None):
                    needed = needed_memory(unit.kernel)
                    if reason := room.lacks(needed):
                        worker.leave_out(unit, "not run", reason)
                    else:
                        with room.taken(needed):
                            worker.judge(unit)
                    judged.add(str(unit))
                    names = [str(each) for each in units_of[unit.id]]
                    if judged.issuperset(names):
                        put_together([parts / f"{name}.json" for name in names], out / f"{unit.id}.json")

        with ThreadPoolExecutor(workers) as pool:
            for _ in pool.map(work, range(workers)):
                pass


def put_together(parts: Sequence[Path], out: Path) -> None:
    """Write a kernel's verdict to `out`, from those on its entry points."""
    found = [read_json(path, "the verdict", "run the gate again") for path in parts]
    by_toolkit: dict[str, list[dict[str, Any]]] = {}
    for one in found:
        for toolkit, verdict in one["toolkits"].items():
            by_toolkit.setdefault(toolkit, []).append(verdict)
    write_json(out, found[0] | {"toolkits": {toolkit: merged(each) for toolkit, each in by_toolkit.items()}})


def merged(verdicts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The verdict on a binary from those on its entry points: it passes if all do."""
    status = next((name for name in ("failed", "not run") if any(one["status"] == name for one in verdicts)), "passed")
    reasons = dict.fromkeys(one["reason"] for one in verdicts if one["reason"])
    cases = [case for one in verdicts for case in one["cases"]]
    return {**verdicts[0], "status": status, "reason": "; ".join(reasons), "cases": cases}


class Worker:
    """A process that judges one entry point after another; a new one where a kernel ended it.
    A kernel that corrupts the GPU's context or exceeds `patience` seconds ends the process. It has failed."""

    def __init__(self, build: Path, seeds: Sequence[int], out: Path, patience: float) -> None:
        self._build, self._out, self._patience = build, out, patience
        self._command = [*WORKER, "--build", str(build), "--out-dir", str(out), "--patience", str(patience)]
        self._command += [f"--seed={seed}" for seed in seeds]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.communicate()

    def judge(self, unit: Wanted) -> None:
        """Judge one entry point; its verdict is in a file of its name then.
        Raises UserError if the process ended otherwise than by the kernel."""
        if self._process is None:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, text=True, bufsize=1)
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{unit}\n")
        if any(line.strip() == str(unit) for line in self._process.stdout):
            return
        code, self._process = self._process.wait(), None
        if code == -signal.SIGALRM:
            self.leave_out(unit, "failed", f"{unit.entry or 'it'} did not end within {self._patience:g} s")
        elif code == -signal.SIGKILL:
            self.leave_out(unit, "not run", "needs more memory than this machine has: its process was killed")
        elif code != BROKEN or not (self._out / f"{unit}.json").is_file():
            raise UserError(f"the numerical gate of {unit.id} ended with exit code {code}; see above.")

    def leave_out(self, unit: Wanted, status: str, reason: str) -> None:
        """Write the verdict on an entry point whose judgement did not end, or did not begin."""
        write_json(self._out / f"{unit}.json", unfinished(unit, self._build, status, reason))
        print(f"{unit.id:24} {status}: {reason}", file=sys.stderr, flush=True)


def unfinished(wanted: Wanted, build: Path, status: str, reason: str) -> dict[str, Any]:
    """The verdict on a kernel that was not judged to the end."""
    kernel, machine = wanted.kernel, device.described()
    with card.of(machine):
        toolkits = {
            toolkit: {
                "status": status,
                **keys_of(kernel, record.read_build(kernel, build, toolkit).build_key),
                "reason": reason,
                "cases": [],
            }
            for toolkit in wanted.built(build)
        }
    return {"kernel": kernel.id, **_machine(machine), "toolkits": toolkits}


def judge_step(arguments: Namespace) -> int:
    """Judge kernels, or be the process that does."""
    if arguments.seeds < 1:
        raise UserError("--seeds must be at least 1.")
    if arguments.worker:
        return _work(arguments)
    if not (arguments.kernels or arguments.family):
        raise UserError("name kernels with --kernels, or a family with --family.")
    if bool(arguments.out) == bool(arguments.out_dir) or (arguments.out and len(arguments.kernels or ()) != 1):
        raise UserError("give --out with one kernel, or --out-dir, the folder that the verdicts go to.")
    if arguments.family:
        registry.family(arguments.family)
        wanted = [Wanted(kernel, kernel.platform.toolkits) for kernel in registry.kernels(arguments.family)]
    else:
        wanted = [Wanted.parse(text) for text in arguments.kernels]
    seeds = arguments.seed or fresh_seeds(arguments.seeds)
    if arguments.out_dir:
        device.claim_gpu()  # one card for all processes
        places = (arguments.build, seeds, arguments.out_dir, arguments.patience or PATIENCE)
        judge_side_by_side(wanted, *places, max(1, arguments.processes))
        return 0
    session = device.open_gpu()
    with device.shared(session):
        result = gate(session, wanted[0], arguments.build, seeds)
    write_json(arguments.out, result)
    print(summary_line(result), file=sys.stderr, flush=True)
    return 0


def _work(arguments: Namespace) -> int:
    """Judge what standard input names, until it ends or a kernel breaks the GPU's context."""
    session, gates = device.open_gpu(), Gates()
    with device.shared(session):
        for line in sys.stdin:
            unit = Wanted.parse(line.strip())
            # Python runs no signal handler while the driver waits for a launch; the default one exits.
            signal.setitimer(signal.ITIMER_REAL, arguments.patience)
            result = gate(session, unit, arguments.build, arguments.seed, gates)
            signal.setitimer(signal.ITIMER_REAL, 0)
            session.free_bytes()  # others may need what this one holds
            write_json(arguments.out_dir / f"{unit}.json", result)
            line = summary_line(result) + (f", entry point {unit.entry}" if unit.entry else "")
            print(line, file=sys.stderr, flush=True)
            if not usable(session):
                return BROKEN
            print(unit, flush=True)
    return 0


def usable(session: Session) -> bool:
    try:
        session.sync()
    except UserError:
        return False
    return True
