"""Puts small faults into the code that judges, measures and gates, and counts those that no test notices.

    python tests/campaigns/surveys.py survey --out survey.json           # with coverage.py: see there
    PYTHONPATH=workflow python tests/campaigns/mutations.py run --survey survey.json --out mutants.json
    PYTHONPATH=workflow python tests/campaigns/mutations.py run --survey survey.json --out mutants.json --again
    PYTHONPATH=workflow python tests/campaigns/mutations.py run --survey survey.json --out since.json --since COMMIT \\
        --seed 23 --recorded tests/campaigns/recorded/mutants.json
    PYTHONPATH=workflow python tests/campaigns/mutations.py confirm --out mutants.json
    PYTHONPATH=workflow python tests/campaigns/mutations.py report --out mutants.json

`run` draws DRAWN faults per package by a fixed seed from all possible ones, whether a test reaches them or not, and
tries each in a process of its own: the tests that run its line, the quickest first, until one fails; with `--wide` then
other tests of the module. It continues where it stopped. `--again` tries those that survived once more, with tests
written since (`--tests`, or a newer survey); what the first pass found is kept. `--since` tries faults of the modules
that changed since a commit: those that were recorded, with the test that noticed them first, and OF_CHANGED others by
another seed. `confirm` runs every test that noticed
a fault once more without any: one that fails then has noticed nothing. `report` prints counts and survivors.

A fault counts as noticed if a test fails, or if the tests cannot be collected any more. If they take minutes longer
than without it (PATIENCE), that is a timeout and counted apart.
`docs/reliability.md` has the outcome, `recorded/mutants.json` every fault.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "workflow"), str(ROOT / "tests/unit")]

from campaigns.mutants import Mutant, mutants, source_of  # noqa: E402
from campaigns.surveys import LIBRARY, modules, package_of, surveyed  # noqa: E402

DRAWN = {"gates": 65, "judge": 65, "measure": 65, "stats": 10, "timing": 15}
"""How many faults are drawn per package."""

SEED = 22

OF_CHANGED = 40
"""How many faults are drawn of the modules that changed since a commit."""

PATIENCE = 240.0
"""Seconds that the tests of one fault may take, in addition to ten times what the survey took."""

MEMORY = 6 << 30
"""Bytes of data that the tests of one fault may hold."""


def possible() -> dict[str, list[tuple[str, Mutant]]]:
    """All mutants by package, each with a name that does not depend on lines."""
    found: dict[str, list[tuple[str, Mutant]]] = defaultdict(list)
    for path in modules():
        seen: Counter[str] = Counter()
        for mutant in mutants(path, LIBRARY):
            name = f"{path}: {mutant.function}: {mutant.kind}"
            seen[name] += 1
            found[package_of(str(path))].append((f"{name} ({seen[name]})" if seen[name] > 1 else name, mutant))
    return found


def drawn(seed: int) -> list[str]:
    """The names of the sample, in an order that mixes the packages."""
    chooser, names = random.Random(seed), []
    for package, found in sorted(possible().items()):
        names += [name for name, _ in chooser.sample(found, DRAWN[package])]
    chooser.shuffle(names)
    return names


def changed_since(commit: str) -> set[str]:
    """The modules under test that changed since `commit`, relative to the library."""
    command = ["git", "-C", str(ROOT), "diff", "--name-only", f"{commit}..HEAD"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return {str(path) for path in modules()} & {name.removeprefix("workflow/") for name in names}


def drawn_since(commit: str, seed: int, recorded: dict[str, Any]) -> list[str]:
    """The recorded faults of the modules that changed since `commit`, and OF_CHANGED others by `seed`."""
    changed = changed_since(commit)
    names = [name for found in possible().values() for name, mutant in found if str(mutant.path) in changed]
    old = [name for name in names if name in recorded]
    others = [name for name in names if name not in recorded]
    return old + random.Random(seed).sample(others, OF_CHANGED)


def affordable(tests: set[str], seconds: dict[str, float], most: float) -> list[str]:
    """The quickest tests that take `most` seconds together, the quickest first; at least one."""
    total, chosen = 0.0, []
    for test in sorted(tests, key=lambda test: (seconds.get(test, 0.0), test)):
        total += seconds.get(test, 0.0)
        if chosen and total > most:
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


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The functions inside a compiled module, in its order."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _codes(inner)


class Functions:
    """The functions of the library that are imported, by file. Made before children are forked: see `gc.freeze`."""

    def __init__(self) -> None:
        self._of: dict[str, list[FunctionType]] = defaultdict(list)
        for function in [one for one in gc.get_objects() if isinstance(one, FunctionType)]:
            self._of[function.__code__.co_filename].append(function)

    def exchange(self, mutant: Mutant) -> None:
        """Give the functions of a module the code with the fault.

        Raises:
            ValueError: a function would close over other variables than it does.
        """
        path = LIBRARY / mutant.path
        sources = (ast.unparse(ast.parse(path.read_text())), source_of(mutant, LIBRARY))
        pairs = zip(*(_codes(compile(source, str(path), "exec")) for source in sources), strict=True)
        changed = {old.co_qualname: new for old, new in pairs if old != new}
        for function in self._of[str(path)]:
            if function.__code__.co_qualname in changed:
                function.__code__ = changed[function.__code__.co_qualname]


class FirstFailure:
    """A pytest plugin: writes down which tests fail."""

    def __init__(self, path: str) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            with Path(self._path).open("a") as file:
                file.write(f"{report.nodeid}\n")


def tried(
    mutant: Mutant | None, tests: list[str], limit: float, functions: Functions | None = None
) -> tuple[str, list[str]]:
    """What becomes of a mutant ("noticed", "survived" or "timeout"), judged in a child, and the tests that failed.

    With no mutant, every test is run.

    Args:
        functions: whose code is exchanged; None: the child imports the library with the fault in it, for what runs as
            modules are imported or as tests are collected.
    """
    with tempfile.NamedTemporaryFile(mode="r") as failures:
        child = os.fork()
        if not child:
            os.setsid()
            code = 1
            with contextlib.suppress(BaseException):
                code = _judged(mutant, tests, failures.name, functions)
            os._exit(code)
        status = _waited(child, limit)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what a test has left running
        failed = failures.read().splitlines()
    if status is None:
        return "timeout", []
    return ("survived" if os.waitstatus_to_exitcode(status) == 0 else "noticed"), failed


def _waited(child: int, limit: float) -> int | None:
    """The status of a child that ends within `limit` seconds; None of one that had to be stopped."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _judged(mutant: Mutant | None, tests: list[str], failures: str, functions: Functions | None) -> int:
    """pytest's exit code on the mutant."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    if mutant and functions:
        functions.exchange(mutant)
    elif mutant:
        assert not any(name.startswith("gemmrepro") for name in sys.modules), "the mutant is imported here"
        name = ".".join(mutant.path.with_suffix("").parts).removesuffix(".__init__")
        sys.meta_path.insert(0, Planted(name, LIBRARY / mutant.path, source_of(mutant, LIBRARY)))
    return _pytest([*(["-x"] if mutant else []), *tests], [FirstFailure(failures)])


def _pytest(words: list[str], plugins: list[Any]) -> int:
    """pytest's exit code; what it prints is dropped."""
    import pytest

    sys.stdout.flush()
    kept = [os.dup(stream) for stream in (0, 1, 2)]
    sink = os.open(os.devnull, os.O_RDWR)
    try:
        for stream in (0, 1, 2):
            os.dup2(sink, stream)
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--durations=0", "--tb=no", "--assert=plain"]
        return int(pytest.main([*options, *words], plugins=plugins))
    finally:
        for stream, copy in zip((0, 1, 2), kept, strict=True):
            os.dup2(copy, stream)


def _warmed(files: set[str]) -> Functions:
    """Import what most children need: the library, and `files` of tests, whose parameters are drawn once."""
    _pytest(["--collect-only", *sorted(files)], [])
    functions = Functions()
    gc.collect()
    gc.freeze()  # or else every child's garbage collector writes to all memory
    return functions


def _imports() -> None:
    """Import what every child needs and no fault is in."""
    import jsonschema  # noqa: F401
    import pandas  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import pytest  # noqa: F401
    import scipy.stats  # noqa: F401

    os.chdir(ROOT)


def _passes(mutant: Mutant, known: dict[str, Any], arguments: argparse.Namespace, first: str = "") -> list[list[str]]:
    """The tests of each pass: those given, or `first`; those that run the line; with --wide others of the module."""
    lines, seconds = known["lines"].get(str(mutant.path), {}), known["seconds"]
    near = set(lines.get(str(mutant.line), []))
    every = {test for tests in lines.values() for test in tests}
    chosen = [arguments.tests or ([first] if first else []), affordable(near, seconds, arguments.quick)]
    chosen.append(affordable(every - near, seconds, arguments.quick) if arguments.wide else [])
    return [tests for tests in chosen if tests]


def run(arguments: argparse.Namespace) -> int:
    """Try the mutants of the sample that the outcome lacks."""
    _imports()
    known, path = surveyed(arguments.survey), Path(arguments.out)
    outcome = json.loads(path.read_text()) if path.is_file() else {}
    where = {name: mutant for found in possible().values() for name, mutant in found}
    end = time.monotonic() + arguments.seconds
    recorded = _together([arguments.recorded]) if arguments.recorded else {}
    sample = drawn_since(arguments.since, arguments.seed, recorded) if arguments.since else drawn(arguments.seed)
    names = [name for name in (outcome if arguments.again else sample) if name in where and arguments.only in name]
    names = [
        name
        for name in names[arguments.part :: arguments.parts]
        if name not in outcome or (arguments.again and outcome[name]["now"] != "noticed")
    ]
    # First what is imported with its fault, while nothing of the library is.
    at_import = [name for name in names if where[name].line in known["imported"][str(where[name].path)]]
    later = [name for name in names if name not in at_import]
    first = {name: each.get("by", "") for name, each in recorded.items()}
    passes = {name: _passes(where[name], known, arguments, first.get(name, "")) for name in names}
    for names in (at_import, later):
        files = {test.split("::")[0] for name in names for tests in passes[name] for test in tests}
        functions = _warmed(files) if names is later and later else None
        for name in names:
            if time.monotonic() > end:
                return 0
            before = outcome.get(name)
            now, by = _outcome(where[name], passes[name], known["seconds"], functions)
            outcome[name] = {"first": before["first"] if before else now, "now": now, "by": by}
            print(f"{now:9} line {where[name].line} of {name}", flush=True)
            path.write_text(json.dumps(outcome, indent=1) + "\n")
    return 0


def _outcome(
    mutant: Mutant, passes: list[list[str]], seconds: dict[str, float], functions: Functions | None
) -> tuple[str, str]:
    """What becomes of a mutant, and the test that noticed it."""
    for tests in passes:
        limit = PATIENCE + 10 * sum(seconds.get(test, 0.0) for test in tests)
        now, failed = tried(mutant, tests, limit, functions)
        if now == "noticed" and not failed and tried(None, tests, limit, functions)[0] != "survived":
            now = "not judged"  # nothing can be collected, and not because of the fault
        if now != "survived":
            return now, failed[0] if failed else ""
    return "survived", ""


def _together(paths: list[str]) -> dict[str, dict[str, str]]:
    outcomes: dict[str, dict[str, str]] = {}
    for path in paths:
        document = json.loads(Path(path).read_text())
        outcomes |= document.get("mutants", document)  # as recorded, or as `run` writes it
    return outcomes


def confirm(arguments: argparse.Namespace) -> int:
    """Run the tests that noticed something without a fault; print those that fail."""
    os.chdir(ROOT)
    tests = sorted({each["by"] for each in _together(arguments.out).values() if each.get("by")})
    outcome, failed = tried(None, tests, 3600)
    print(f"{len(tests)} tests without a fault: {len(failed)} fail", *failed, sep="\n  ")
    return int(outcome != "survived")


def report(arguments: argparse.Namespace) -> int:
    """Print how many were noticed, by package, in the first pass and now, and the survivors."""
    outcomes, packages = _together(arguments.out), defaultdict(list)
    for name, outcome in outcomes.items():
        packages[package_of(name.split(":")[0])].append(outcome)
    everything = {package: len(found) for package, found in possible().items()}
    for package, found in [*sorted(packages.items()), ("all", list(outcomes.values()))]:
        first, now = (sum(each[when] == "noticed" for each in found) for when in ("first", "now"))
        of = everything.get(package, sum(everything.values()))
        print(f"{package:8} {of:5} possible {len(found):4} tried {first:4} noticed at first {now:4} now", end=" ")
        print(f"{now / len(found):.1%}")
    print("timeouts:", sum(each["now"] == "timeout" for each in outcomes.values()))
    print(*sorted(name for name, outcome in outcomes.items() if outcome["now"] != "noticed"), sep="\n")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(required=True)
    running = commands.add_parser("run")
    running.add_argument("--survey", required=True, nargs="+", help="of several files of tests each, or of all")
    running.add_argument("--out", required=True)
    running.add_argument("--part", type=int, default=0, help="which part of the mutants, counted from 0")
    running.add_argument("--parts", type=int, default=1)
    running.add_argument("--seconds", type=float, default=1e9, help="begin no mutant after so long")
    running.add_argument("--only", default="", help="mutants with this text in their names")
    running.add_argument(
        "--quick", type=float, default=8.0, help="seconds, by the survey, of a fault's tests in a pass"
    )
    running.add_argument("--again", action="store_true", help="try survivors again")
    running.add_argument("--tests", nargs="*", default=[], help="tests that are tried first")
    running.add_argument("--seed", type=int, default=SEED)
    running.add_argument("--since", metavar="COMMIT", help="faults of the modules that changed since")
    running.add_argument("--recorded", help="an outcome whose faults --since tries again")
    running.add_argument("--wide", action="store_true", help="try other tests of the module, too")
    running.set_defaults(do=run)
    for name, do in (("confirm", confirm), ("report", report)):
        command = commands.add_parser(name)
        command.add_argument("--out", required=True, nargs="+")
        command.set_defaults(do=do)
    arguments = parser.parse_args()
    return int(arguments.do(arguments))


if __name__ == "__main__":
    sys.exit(main())
