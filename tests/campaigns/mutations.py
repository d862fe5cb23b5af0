"""Puts small faults into the code that judges, measures and gates, and counts those that no test notices.

    pip install coverage
    PYTHONPATH=workflow python tests/campaigns/mutations.py survey --out survey.json
    PYTHONPATH=workflow python tests/campaigns/mutations.py run --survey survey.json --count 300 --out mutants.json
    PYTHONPATH=workflow python tests/campaigns/mutations.py report --out mutants.json

`survey` runs the unit tests once under coverage.py: which test runs which line, and how long each takes; a test that
fails without any fault does not count. `run` draws
faults at random among the lines that some test runs, and runs, per fault, only those tests, the quickest first, in a
process of its own until one fails. It continues where it stopped. `report` prints what survived.

A fault counts as noticed if a test fails, if none can be collected any more, or if the tests take ten times as long.
`docs/reliability.md` has the outcome.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "workflow"), str(ROOT / "tests/unit")]

from campaigns.mutants import Mutant, mutants, source_of  # noqa: E402

LIBRARY = ROOT / "workflow"
JUDGING = ("gates/*.py", "judge/**/*.py", "measure/**/*.py", "stats.py", "timing.py")
"""What decides a verdict or a number."""

SLOW = ("crt", "cutile", "kernels", "plants_caught", "tune", "build", "images", "nix_sources", "report", "figures")
"""Unit tests that are left out: minutes each, and of other code."""

QUICK = 45.0
"""Seconds that the tests of one fault may take; slower ones are left out."""


def modules() -> list[Path]:
    """The modules under test, relative to the library."""
    found = [path for pattern in JUDGING for path in sorted((LIBRARY / "gemmrepro").glob(pattern))]
    return [path.relative_to(LIBRARY) for path in found]


class Watch:
    """A pytest plugin: names the running test to coverage.py, and times it."""

    def __init__(self, measuring: Any) -> None:
        self.measuring, self.seconds, self.failed = measuring, {}, set()
        self._start = 0.0

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Leaves out what starts a whole run."""
        items[:] = [item for item in items if not {"default_run", "toolkit"} & set(item.fixturenames)]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._start = time.monotonic()
        self.measuring.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.add(report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.seconds[nodeid] = time.monotonic() - self._start
        self.measuring.switch_context("")


def survey(arguments: argparse.Namespace) -> int:
    """Run the unit tests once; write which of them runs which line, and the branches that none takes."""
    import coverage
    import pytest

    names = {f"test_{name}.py" for name in SLOW}
    files = arguments.tests or [str(path) for path in (ROOT / "tests/unit").glob("test_*.py") if path.name not in names]
    data = str(Path(arguments.out).with_suffix(".coverage"))
    measuring = coverage.Coverage(data_file=data, branch=True, include=[str(LIBRARY / path) for path in modules()])
    watch = Watch(measuring)
    measuring.start()
    code = pytest.main(
        ["-q", "-p", "no:cacheprovider", "--continue-on-collection-errors", "--durations=0", *files], plugins=[watch]
    )
    measuring.stop()
    measuring.save()
    lines: dict[str, dict[int, list[str]]] = {}
    for path in modules():
        tests = measuring.get_data().contexts_by_lineno(str(LIBRARY / path))
        lines[str(path)] = {line: sorted(set(found) - watch.failed - {""}) for line, found in tests.items()}
    Path(arguments.out).write_text(
        json.dumps({"seconds": watch.seconds, "lines": lines, "failed": sorted(watch.failed)})
    )
    measuring.report(file=sys.stdout, show_missing=True, skip_covered=False)
    return int(code)


def surveyed(paths: list[str]) -> dict[str, Any]:
    """One or several surveys as one."""
    whole: dict[str, Any] = {"seconds": {}, "lines": defaultdict(lambda: defaultdict(list))}
    for path in paths:
        known = json.loads(Path(path).read_text())
        whole["seconds"] |= known["seconds"]
        for module, lines in known["lines"].items():
            for line, tests in lines.items():
                whole["lines"][module][line] += tests
    return whole


def drawn(known: dict[str, Any], count: int, seed: int) -> list[tuple[Mutant, list[str]]]:
    """`count` mutants on lines that a test runs, with those tests, the quickest first."""
    seconds, found = known["seconds"], []
    for path in modules():
        lines = known["lines"].get(str(path), {})
        for mutant in mutants(path, LIBRARY):
            tests = sorted(lines.get(str(mutant.line), []), key=lambda test: seconds.get(test, 0.0))
            if tests:
                found.append((mutant, tests))
    return random.Random(seed).sample(found, min(count, len(found)))


def affordable(tests: list[str], seconds: dict[str, float]) -> list[str]:
    """The quickest tests that take QUICK seconds together; always one."""
    total, chosen = 0.0, []
    for test in tests:
        total += seconds.get(test, 0.0)
        if chosen and total > QUICK:
            break
        chosen.append(test)
    return chosen


class Planted(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a source with a fault in it."""

    def __init__(self, name: str, path: Path, source: str) -> None:
        self._name, self._path, self._source = name, path, source

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        package = [str(self._path.parent)] if self._path.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(name, self._path, loader=self, submodule_search_locations=package)

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._source, str(self._path), "exec"), module.__dict__)


def tried(mutant: Mutant, tests: list[str], limit: float) -> str:
    """What becomes of a mutant: "noticed", "survived" or "timeout"; judged in a child process."""
    child = os.fork()
    if not child:
        os.setsid()
        signal.alarm(int(limit))
        code = 1
        with contextlib.suppress(BaseException):
            code = _judged(mutant, tests)
        os._exit(code)
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what a test has left running
    if os.WIFSIGNALED(status):
        return "timeout" if os.WTERMSIG(status) == signal.SIGALRM else "noticed"
    return "survived" if os.WEXITSTATUS(status) == 0 else "noticed"


def _judged(mutant: Mutant, tests: list[str]) -> int:
    """pytest's exit code on the mutant."""
    import pytest

    name = ".".join(mutant.path.with_suffix("").parts).removesuffix(".__init__")
    sys.meta_path.insert(0, Planted(name, LIBRARY / mutant.path, source_of(mutant, LIBRARY)))
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--durations=0", "--tb=no"]
    return int(pytest.main([*options, *tests]))


def run(arguments: argparse.Namespace) -> int:
    """Try the mutants that the outcome lacks."""
    import pandas  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import pytest  # noqa: F401
    import yaml  # noqa: F401

    assert not any(name.startswith("gemmrepro") for name in sys.modules), "a child imports the mutant afresh"
    os.chdir(ROOT)
    known = surveyed(arguments.survey)
    path = Path(arguments.out)
    outcome = json.loads(path.read_text()) if path.is_file() else {}
    start = time.monotonic()
    mine = drawn(known, arguments.count, arguments.seed)[arguments.part :: arguments.parts]
    for mutant, tests in mine:
        if time.monotonic() - start > arguments.seconds:
            break
        if mutant.name in outcome and not (arguments.again and outcome[mutant.name] == "survived"):
            continue
        chosen = affordable(tests, known["seconds"])
        limit = 30 + 10 * sum(known["seconds"].get(test, 0.0) for test in chosen)
        outcome[mutant.name] = tried(mutant, chosen, limit)
        print(f"{outcome[mutant.name]:9} {mutant.function}: {mutant.name}", flush=True)
        path.write_text(json.dumps(outcome, indent=1) + "\n")
    return 0


def report(arguments: argparse.Namespace) -> int:
    """Print how many were noticed, by package, and the survivors."""
    outcomes: dict[str, str] = {}
    for path in arguments.out:
        outcomes |= json.loads(Path(path).read_text())
    packages: dict[str, list[str]] = defaultdict(list)
    for name, outcome in outcomes.items():
        packages[name.split(":")[0].split("/")[1].removesuffix(".py")].append(outcome)
    for package, found in sorted(packages.items()):
        print(f"{package:8} {len(found):4} tried, {sum(one != 'survived' for one in found):4} noticed")
    survivors = [name for name, outcome in outcomes.items() if outcome == "survived"]
    print(f"all      {len(outcomes):4} tried, {len(outcomes) - len(survivors):4} noticed")
    print("\n".join(sorted(survivors)))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(required=True)
    surveying = commands.add_parser("survey")
    surveying.add_argument("--out", required=True)
    surveying.add_argument("tests", nargs="*", help="files of tests; default: the unit tests")
    surveying.set_defaults(do=survey)
    running = commands.add_parser("run")
    running.add_argument("--survey", required=True, nargs="+", help="of several files of tests each, or of all")
    running.add_argument("--out", required=True)
    running.add_argument("--count", type=int, default=300)
    running.add_argument("--seed", type=int, default=22)
    running.add_argument("--part", type=int, default=0, help="which part of the mutants, counted from 0")
    running.add_argument("--parts", type=int, default=1)
    running.add_argument("--seconds", type=float, default=1e9, help="begin no mutant after so long")
    running.add_argument("--again", action="store_true", help="try survivors again")
    running.set_defaults(do=run)
    reporting = commands.add_parser("report")
    reporting.add_argument("--out", required=True, nargs="+")
    reporting.set_defaults(do=report)
    arguments = parser.parse_args()
    return int(arguments.do(arguments))


if __name__ == "__main__":
    sys.exit(main())
