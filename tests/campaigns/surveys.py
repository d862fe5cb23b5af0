"""Which unit test runs which line of the code that judges, measures and gates, and which branches none takes.

    python -m pip install --target coverage-packages coverage==7.17.3
    export PYTHONPATH=workflow:coverage-packages
    python tests/campaigns/surveys.py survey --out survey.json
    python tests/campaigns/surveys.py branches --survey survey.json --out branches.json

`survey` runs the unit tests once under coverage.py. A test that fails without any fault does not count. What a fixture
of several tests runs counts for each of them. `branches` prints, by package, how many branches some unit test takes,
and lists the others.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "workflow"
JUDGING = ("gates/*.py", "judge/**/*.py", "measure/**/*.py", "stats.py", "timing.py")
"""What decides a verdict or a number."""

ELSEWHERE = (
    "build",
    "crate",
    "figures",
    "images",
    "kernels",
    "nix_sources",
    "one_file",
    "packaging",
    "report",
    "style",
)
"""Unit tests that are left out: minutes together, and of other code."""


def modules() -> list[Path]:
    """The modules under test, relative to the library."""
    found = [path for pattern in JUDGING for path in sorted((LIBRARY / "gemmrepro").glob(pattern))]
    return [path.relative_to(LIBRARY) for path in found]


def package_of(path: str) -> str:
    """`judge` for gemmrepro/judge/rules.py; `stats` and `timing` for themselves."""
    return Path(path).parts[1].removesuffix(".py")


class Watch:
    """A pytest plugin: names the running test, or the shared fixture, to coverage.py, and times it."""

    def __init__(self, measuring: Any) -> None:
        self.measuring, self.seconds, self.failed = measuring, {}, set()
        self.users: dict[str, set[str]] = defaultdict(set)
        self._start, self._contexts = 0.0, [""]
        self._waited: dict[str, float] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Leaves out what starts a whole run or Snakemake; notes which tests share which fixtures."""
        items[:] = [item for item in items if not {"default_run", "toolkit", "tree"} & set(item.fixturenames)]
        for item in items:
            for definitions in item._fixtureinfo.name2fixturedefs.values():
                self.users[_fixture(definitions[-1])].add(item.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        """What a fixture of several tests runs counts for all of them."""
        shared, start = fixturedef.scope != "function", time.monotonic()
        self._contexts.append(_fixture(fixturedef) if shared else self._contexts[-1])
        self.measuring.switch_context(self._contexts[-1])
        try:
            return (yield)
        finally:
            if shared:  # a test that is run alone waits for it as well
                self._waited[_fixture(fixturedef)] = time.monotonic() - start
            self._contexts.pop()
            self.measuring.switch_context(self._contexts[-1])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._start, self._contexts = time.monotonic(), [nodeid]
        self.measuring.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.add(report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.seconds[nodeid] = time.monotonic() - self._start
        self._contexts = [""]
        self.measuring.switch_context("")

    def alone(self) -> dict[str, float]:
        """Seconds of each test with the fixtures that it shares."""
        shared: dict[str, float] = defaultdict(float)
        for name, seconds in self._waited.items():
            for test in self.users[name]:
                shared[test] += seconds
        return {test: seconds + shared[test] for test, seconds in self.seconds.items()}

    def tests(self, contexts: list[str]) -> list[str]:
        """The tests that pass behind names of tests and fixtures."""
        found = {test for name in contexts for test in self.users.get(name, {name})}
        return sorted(found & set(self.seconds) - self.failed)


def _fixture(definition: Any) -> str:
    """A name for a fixture that no test has."""
    return f"fixture {definition.baseid} {definition.argname}"


def _data(survey: str) -> str:
    """Where coverage.py keeps what `survey` found."""
    return str(Path(survey).with_suffix(".coverage"))


def survey(arguments: argparse.Namespace) -> int:
    """Run the unit tests once; write which of them runs which line."""
    import coverage

    names = {f"test_{name}.py" for name in ELSEWHERE}
    every = (path for path in sorted((ROOT / "tests/unit").glob("test_*.py")) if path.name not in names)
    files = arguments.tests or [str(path) for path in every]
    include = [str(LIBRARY / path) for path in modules()]
    measuring = coverage.Coverage(data_file=_data(arguments.out), branch=True, include=include)
    watch = Watch(measuring)
    measuring.start()
    options = ["-q", "-p", "no:cacheprovider", "--continue-on-collection-errors", "--durations=0", "--tb=short"]
    code = pytest.main([*options, *files], plugins=[watch])
    measuring.stop()
    measuring.save()
    lines: dict[str, dict[int, list[str]]] = {}
    imported: dict[str, list[int]] = {}
    for path in modules():
        found = measuring.get_data().contexts_by_lineno(str(LIBRARY / path))
        lines[str(path)] = {line: watch.tests(contexts) for line, contexts in found.items()}
        imported[str(path)] = sorted(line for line, contexts in found.items() if "" in contexts)
    known = {"seconds": watch.alone(), "lines": lines, "imported": imported, "failed": sorted(watch.failed)}
    Path(arguments.out).write_text(json.dumps(known))
    return int(code)


def surveyed(paths: list[str]) -> dict[str, Any]:
    """One or several surveys as one: `seconds` by test, tests by line by module, lines that run outside of tests."""
    whole: dict[str, Any] = {"seconds": {}, "lines": defaultdict(lambda: defaultdict(list))}
    whole["imported"] = defaultdict(set)
    for path in paths:
        known = json.loads(Path(path).read_text())
        whole["seconds"] |= known["seconds"]
        for module, lines in known["lines"].items():
            for line, tests in lines.items():
                whole["lines"][module][line] += tests
        for module, numbers in known["imported"].items():
            whole["imported"][module] |= set(numbers)
    return whole


ON_A_GPU = (
    "gates/gemm.py: judge",
    "gates/gemm.py: _half_sums",
    "gates/gemm.py: _half_sums_of",
    "gates/numeric.py: _work",
    "measure/compilation_check.py: check",
    "measure/compilations.py: just_in_time",
    "measure/compilations.py: codes",
    "gpu/loaded.py: occupancy",
    "gpu/occupancy.py: occupancy",
    "gpu/ranges.py: current",
    "measure/regimes/passes.py: _load",
    "measure/results.py: manifest",
    "measure/results.py: baseline_kernels",
)
"""Functions that need a GPU, a profiler or cuTile's compiler: tests/gpu runs them."""


GUARDS = {
    "judge/expressions.py: _value": "cannot be: the expression was checked when it was read",
    "judge/metrics/base.py: carried_over": "cannot be: its callers ask first whether anything carries over",
    "judge/metrics/base.py: _other_toolkits": "cannot be: a figure's metric has one value",
    "judge/metrics/experiment.py: _carried": "cannot be: its callers ask first whether anything carries over",
    "measure/checks/regimes.py: _check_energy": "cannot be: the blocks of a burst give no energy, which is asked first",
    "measure/scatter.py: _trigamma_inverse": "cannot be: Newton's method arrives within a few of its 50 steps",
    "measure/rounds.py: confirm": "cannot be: what was timed has a check",
}
"""Functions with a branch that stands against a wrong caller."""


def why_untaken(path: str, line: int) -> str:
    """Why no unit test takes a branch on a line of a module."""
    tree = ast.parse((LIBRARY / path).read_text())
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    if not around or around[0].name in ("main", "_parser"):
        return "a command line: tests run it as a process, where nothing is counted"
    names = {f"{path.removeprefix('gemmrepro/')}: {node.name}" for node in around}
    if guarding := names & set(GUARDS):
        return GUARDS[min(guarding)]
    return "needs a GPU, a profiler or cuTile: tests/gpu" if names & set(ON_A_GPU) else "no unit test takes it"


def branches(arguments: argparse.Namespace) -> int:
    """Print and write how many branches the surveyed tests take, and those that none takes."""
    import coverage

    measuring = coverage.Coverage(data_file=None, branch=True, include=[str(LIBRARY / path) for path in modules()])
    measuring.combine([_data(path) for path in arguments.survey], keep=True)
    found: dict[str, Any] = {"packages": {}, "untaken": {}}
    reasons: Counter[tuple[str, str]] = Counter()
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for path in modules():
        analysis = measuring._analyze(str(LIBRARY / path))
        numbers = analysis.numbers
        total = totals[package_of(str(path))]
        total[0] += numbers.n_branches
        total[1] += numbers.n_branches - numbers.n_missing_branches
        source = (LIBRARY / path).read_text().splitlines()
        for line, targets in sorted(analysis.missing_branch_arcs().items()):
            for target in targets:
                to = "leaves" if target < 0 else source[target - 1].strip()
                why = why_untaken(str(path), line)
                reasons[package_of(str(path)), why] += 1
                text = f"{line}: {source[line - 1].strip()} -> {to}"
                found["untaken"].setdefault(str(path), {}).setdefault(why, []).append(text)
    found["packages"] = {name: {"branches": all_, "taken": taken} for name, (all_, taken) in sorted(totals.items())}
    for name, (all_, taken) in sorted(totals.items()):
        print(f"{name:8} {taken:5} of {all_:5} branches, {taken / all_:.1%}" if all_ else f"{name:8} no branch")
    for (package, why), number in sorted(reasons.items()):
        print(f"{package:8} {number:5} untaken: {why}")
    for name, by_reason in found["untaken"].items():
        for why, untaken in by_reason.items():
            print(f"{name}, {why}:", *untaken, sep="\n  ")
    if arguments.out:
        Path(arguments.out).write_text(json.dumps(found, indent=1) + "\n")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(required=True)
    surveying = commands.add_parser("survey")
    surveying.add_argument("--out", required=True)
    surveying.add_argument("tests", nargs="*", help="files of tests; default: the unit tests")
    surveying.set_defaults(do=survey)
    counting = commands.add_parser("branches")
    counting.add_argument("--survey", required=True, nargs="+")
    counting.add_argument("--out")
    counting.set_defaults(do=branches)
    arguments = parser.parse_args()
    return int(arguments.do(arguments))


if __name__ == "__main__":
    sys.exit(main())
