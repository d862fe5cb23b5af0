"""Judge and time a kernel of one's own beside its baseline: the gate, in turn, sustained and in bursts.

    python -m gemmrepro own --kernel my_gemm.py --config results/config.json --journal results/sweep/own/my_gemm \\
        --out results/own/my_gemm.json

Each part is a process of its own: if the file crashes, hangs or corrupts the GPU's context, the result says so, and
what was finished is kept. A file may launch where it likes, so each timed launch is also made while its stream is held:
what has reached C before the stream goes on was launched elsewhere, where no time would count it.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

from gemmrepro import timing
from gemmrepro.core import dtypes
from gemmrepro.core.files import csv_text, read_json, write_atomic, write_json
from gemmrepro.core.journal import card_of, end_with_parent, fresh_seeds, sayer
from gemmrepro.core.names import LIBRARY
from gemmrepro.errors import UserError
from gemmrepro.gates.gate import POISON_BITS
from gemmrepro.gates.numeric import judge, keys_of
from gemmrepro.gpu import baselines, device
from gemmrepro.gpu.own import OWN, Bound, Own, failure, loaded, read
from gemmrepro.measure import results
from gemmrepro.measure.columns import REGIME_COLUMNS, SUMMARY_COLUMNS
from gemmrepro.measure.passes import GpuDevice, Passes, RegimeSettings, sets
from gemmrepro.measure.plan import Point, Settings
from gemmrepro.measure.prepare import Check, prepare
from gemmrepro.measure.regimes import IN_TURN
from gemmrepro.measure.rounds import Rounds, Second, Workspace

say = sayer(OWN)

NO_GPU, BROKEN = 69, 74
"""Exit codes of a part: this machine cannot measure (EX_UNAVAILABLE), and the file failed (EX_IOERR)."""

HOLD_SECONDS = 2.0
"""The most that a stream is held; a launch that waits for its stream goes on then."""

LOOK_SECONDS = 0.05
"""The least time that a launch on another stream is given to show in C."""


def elsewhere(session: device.Session, call: Callable[[], None], output: Any, launch_us: float) -> bool:
    """Whether a launch reaches `output` though the session's stream, on which it is to run, is held."""
    import cupy

    let_go, over = threading.Event(), threading.Event()

    def hold(_: Any) -> None:
        let_go.wait(HOLD_SECONDS)
        over.set()

    beside, poison = cupy.cuda.Stream(non_blocking=True), POISON_BITS[output.dtype.itemsize]
    dtypes.bits(output)[...] = poison
    session.sync()
    session.stream.launch_host_func(hold, None)
    try:
        call()
        time.sleep(min(HOLD_SECONDS / 4, LOOK_SECONDS + 3e-6 * launch_us))
        seen = dtypes.bits(output.get(stream=beside, blocking=True))
        held = not over.is_set()
    finally:
        let_go.set()
    session.sync()
    return held and bool((seen != poison).any())


class Watched(Rounds):
    """Rounds that also look, before and after each timing, whether a launch runs on its stream.
    A file's `bind` may read the inputs, so what is judged again was bound before they were replaced."""

    def second(self, point: Point, workspace: Workspace, median: float) -> Second:
        second = super().second(point, workspace, median)
        bound = second.bind(0)
        return replace(second, bind=lambda index: second.bind(index) if index else bound)

    def ensure_checked(self, point: Point, workspace: Workspace, timer: timing.Timer) -> Check:
        return self._looked_at(point, workspace, super().ensure_checked(point, workspace, timer))

    def confirm(self, medians: Mapping[Point, float], workspace: Workspace, timer: timing.Timer) -> None:
        super().confirm(medians, workspace, timer)
        for point in {point.subject: point for point in medians}.values():
            if check := self._sweep.check(point):
                self._looked_at(point, workspace, check)

    def _looked_at(self, point: Point, workspace: Workspace, check: Check) -> Check:
        library = point.toolkit == LIBRARY and not point.kernel.startswith(f"{OWN}.")
        if library or not check.passed:
            return check
        call, output = self.bind(point, workspace), workspace.operands(None).output
        if elsewhere(self._sweep.session, call, output, check.estimate_us):
            said = "a launch writes C before its stream gets to it: it runs on another one, where no time counts it"
            check = replace(check, passed=False, message=said)
            self._sweep.keep_check(point, check)
            self._say(f"not reported: {point.kernel} at {point.shape}: {said}")
        return check


Binds = Sequence[Callable[..., Any]]
"""The `bind` of the file and, if that is one's own, of its baseline."""


class Bench:
    """A file beside its baseline on an open GPU: a sweep of one kernel, its passes in the regimes, their journal."""

    def __init__(self, session: device.Session, own: Own, binds: Binds, config: Mapping[str, Any], options: Namespace):
        self._session, self._seeds = session, config["gates"]["seeds"]
        self._bound = Bound(session, own, binds[0], options.patience)
        if own.baseline:
            entry = Bound(session, own.baseline, binds[1], options.patience).as_baseline()
            baselines.BASELINES[entry.id] = entry
        alone = {"toolkits": [OWN], "sizes": {OWN: list(own.sizes)}}
        chosen = dict.fromkeys(("toolkit_of", "cache_of", "sizes_of", "kernels_at", "counters"))
        settings = Settings.of({**config["sweep"], **chosen, **alone}, OWN)
        regimes = RegimeSettings.of({**config["regimes"], **alone, "kernels": {}, "minutes": {}}, OWN)
        binaries, journal, free = {(own.kernel.id, OWN): self._bound}, options.journal, session.free_bytes()
        self._sweep, self._warm = (
            prepare(
                session, {own.kernel.id: own.kernel}, each, journal, journal, journal, say, free, cast(Any, binaries)
            )
            for each in (settings, replace(settings, caches=("warm",)))
        )
        members = sets(self._warm.points, [OWN])
        self._passes = Passes(self._warm, regimes, members, GpuDevice(session), say, Watched(self._warm, say))

    def gate(self, make: bool = True) -> dict[str, Any] | None:
        """The gate's verdict, from the journal or made now."""
        identity = {**self._sweep.machine, **keys_of(self._bound.kernel, self._bound.build_key)}
        verdict = self._sweep.journal.get("gate", identity)
        if verdict is None and make:
            verdict = judge(self._session, self._bound, fresh_seeds(self._seeds))
            self._sweep.journal.put("gate", identity, verdict)
        return verdict

    def do(self, part: str) -> None:
        """Do one part: ``gate``, a round by its number, or ``regimes``; only what passed its gate is timed."""
        verdict = self.gate()
        if part != "gate" and verdict and verdict["status"] == "passed":
            self._passes.run(None) if part == "regimes" else Watched(self._sweep, say).run(int(part), None)

    def found(self) -> dict[str, Any]:
        """The results so far, all from the journal."""
        rows = [results.summary_row(self._sweep, measured) for measured in results.gather(self._sweep)]
        regimes, _, _, skipped = results.regime_tables(self._warm, self._passes)
        left = [each for each in skipped if each.toolkit]  # the others are passes still to come
        about = results.circumstances(self._sweep, (), self._sweep.settings.document, left)
        versions = next(iter(self._sweep.versions.values()))
        return {**about, "against": versions, "gate": self.gate(make=False), "rows": rows, "regimes": regimes}


def described(own: Own) -> dict[str, Any]:
    """The result of a file before anything ran. The static gate reads machine code that the build made."""
    kernel = own.kernel
    about = {"kernel": kernel.id, "title": kernel.title, "file": own.path.name, "key": own.key}
    declared = {"compute": asdict(kernel.compute), "multiple_of": {**kernel.accepts.multiple_of}}
    empty: dict[str, Any] = {
        "static": "not applicable",
        "gate": None,
        "rows": [],
        "regimes": [],
        "skipped": [],
        "ended": "",
    }
    return {**about, **declared, "baseline": str(kernel.timing.baseline), **empty}


def write(out: Path, document: Mapping[str, Any]) -> None:
    """Write a result, and its rows as CSV beside it."""
    write_json(out, document)
    rows = [{"regime": IN_TURN, **row} for row in document["rows"]] + list(document["regimes"])
    write_atomic(out.with_suffix(".csv"), csv_text(rows, list(dict.fromkeys([*SUMMARY_COLUMNS, *REGIME_COLUMNS]))))


def do_part(options: Namespace, own: Own) -> int:
    """Be the process that does one part; what was found is in the file `options.out` when it ends."""
    end_with_parent()
    device.drop_switches(os.environ)
    document = read_json(options.out, "the result", "run the target 'own' again")
    signal.setitimer(signal.ITIMER_REAL, options.patience)
    try:
        binds = [loaded(each) for each in (own, own.baseline) if each]
    except UserError as error:
        write_json(options.out, {**document, "part": options.part, "ended": str(error)})
        return BROKEN
    signal.setitimer(signal.ITIMER_REAL, 0)  # another stage may hold the GPU for long
    config, ended = read_json(options.config, "the configuration", "let the workflow write it, or see its schema"), ""
    try:
        session = device.open_gpu(card_of(options.journal))
        with device.exclusive(session):
            made = Bench(session, own, binds, config, options)
            try:
                made.do(options.part)
            except Exception as error:
                ended = failure(own, error)
            # A file that failed may have broken the GPU's context, and what needs it.
            with contextlib.suppress(*([Exception] if ended else [])):
                document |= made.found()
            write_json(options.out, {**document, "part": options.part, "ended": ended})
    except UserError as error:
        print(f"gemmrepro: {error}", file=sys.stderr)
        return NO_GPU
    return BROKEN if ended else 0


def _how(code: int, finished: bool, patience: float) -> str:
    """The way in which a part ended that did not end well; "" if it did."""
    if code == -signal.SIGALRM:
        return f"it did not end within {patience:g} s"
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    return "" if finished and not code else f"its process ended with exit code {code} before it was finished"


def main(options: Namespace) -> int:
    """Judge and time a kernel of one's own, or be the process of one part."""
    own = read(options.kernel)
    if options.part:
        return do_part(options, own)
    config = read_json(options.config, "the configuration", "let the workflow write it, or see its schema")
    device.claim_gpu(card_of(options.journal))
    for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        os.environ.setdefault(name, str(options.journal.absolute().with_name("cache")))
    document = described(own)
    write_json(options.out, document)
    given = ("--config", options.config, "--journal", options.journal, "--out", options.out)
    arguments = map(str, (*given, "--patience", options.patience, "--kernel", own.path))
    own_command = [sys.executable, "-m", "gemmrepro", "own", *arguments]
    for part in ("gate", *map(str, range(config["sweep"]["rounds"])), "regimes"):
        code = subprocess.run([*own_command, "--part", part], check=False).returncode
        if code == NO_GPU:
            return 1
        document = read_json(options.out, "the result", "run the target 'own' again")
        if not document["ended"] and (how := _how(code, document.get("part") == part, options.patience)):
            document["ended"] = f"{'round ' if part.isdigit() else ''}{part}: {how}"
        if document["ended"] or document["gate"]["status"] != "passed":
            break
    write(options.out, document)
    gate = document["gate"] or {"status": "not run", "reason": ""}
    say(f"{own.kernel.id}: gate {gate['status']} {gate['reason']}, {len(document['rows'])} rows {document['ended']}")
    return 0
