"""Checks of a whole family and its files against the contract.

Each yields whether something holds, where, and what is wrong where it does not.
"""

from __future__ import annotations

import ast
import re
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from gemmrepro import experiments, registry
from gemmrepro.check.kernel import CHECKS as OF_A_KERNEL
from gemmrepro.check.kernel import included
from gemmrepro.core import paths
from gemmrepro.errors import UserError
from gemmrepro.experiments import Experiment, tables
from gemmrepro.judge import calculation, claims
from gemmrepro.paper import findings as texts
from gemmrepro.registry import FIGURES, Kernel, ladders

Checks = Iterator[tuple[object, str, str]]


def check_identities(family: str) -> Checks:
    """Ids and the family's own record are consistent; all other checks depend on them."""
    record, kernels = registry.family(family), registry.kernels(family)
    where = f"kernels/{family}/family.py"
    yield (record.name == family, where, f"FAMILY.name is '{record.name}'; the folder is '{family}'.")
    figures = [name for name in record.figures if name not in FIGURES]
    yield (not figures, where, f"FAMILY.figures names {', '.join(figures)}; known are {', '.join(FIGURES)}.")
    for kernel in kernels:
        yield (
            kernel.family == family,
            kernel.id,
            f"its id must begin with '{family}.', after the folder that it is in.",
        )
    for kernel_id, count in Counter(kernel.id for kernel in kernels).items():
        yield (count == 1, kernel_id, f"{count} records have this id; rename all but one.")


LONGEST = 40
"""Maximum length of a label in figures, in characters."""


def check_rungs(family: str) -> Checks:
    """A family's rungs and labels are unique, in order, and short enough to draw."""
    yield from _check_order(registry.kernels(family))
    yield from _check_labels(family)


def _check_order(kernels: tuple[Kernel, ...]) -> Checks:
    """Each rung has one source, and rungs are in numerical order."""
    climbed = [kernel for kernel in kernels if kernel.timing.baseline]
    sources: dict[str, str] = {}
    for kernel in climbed:
        first = sources.setdefault(kernel.rung, kernel.source)
        yield (first == kernel.source, kernel.id, f"its rung {kernel.rung} is that of {first} too; give it another.")
    last: dict[tuple[str, ...], tuple[Kernel, tuple[int, ...]]] = {}
    for kernel in climbed:
        parsed = _parsed(kernel.rung)
        if parsed is None or ladders.original(kernel) is not None:
            continue
        ladder, number = parsed
        if ladder in last:
            before, previous = last[ladder]
            yield (
                previous <= number,
                kernel.id,
                f"rung {kernel.rung} follows {before.rung} in KERNELS; order the records by rung.",
            )
        last[ladder] = kernel, number


def _parsed(rung: str) -> tuple[tuple[str, ...], tuple[int, ...]] | None:
    """The ladder and the number of a rung: ``L7.1`` has ("L", "", "") and (7, 1); None for a rung without a number."""
    match = re.fullmatch(r"([A-Za-z]*)(\d+)([a-z]*)((?:\.\d+)*)(.*)", rung)
    if match is None:
        return None
    prefix, major, branch, minor, tail = match.groups()
    return (prefix, branch, tail), (int(major), *(int(part) for part in minor.split(".")[1:]))


def _check_labels(family: str) -> Checks:
    """Labels of kernels are unique and short."""
    labels = {kernel.id: ladders.label(kernel) for kernel in ladders.compared(family)}
    for (first, name), (second, next_name) in pairwise(sorted(labels.items(), key=lambda item: item[1])):
        yield (name != next_name, second, f"its label, '{next_name}', is that of {first} too; change its name or rung.")
    for kernel_id, name in labels.items():
        yield (
            len(name) <= LONGEST,
            kernel_id,
            f"its label '{name}' is longer than {LONGEST} characters; shorten its name.",
        )


DECLARATIONS = ("family.py", "figures.py", experiments.FILE, tables.FILE, calculation.FILE)
"""Python files of a family that are not sources."""


def check_files(family: str) -> Checks:
    """Every source and header in a family's folder belongs to a record."""
    folder = paths.KERNELS_DIR / family
    kernels = registry.kernels(family)
    listed = {kernel.source for kernel in kernels} | {*DECLARATIONS}
    headers = {header for kernel in kernels for header in kernel.code.headers}
    headers |= {
        header for kernel in kernels if kernel.source.endswith(".cu") for header in included(kernel.source_path)
    }
    listed |= {header.removeprefix(f"{family}/") for header in headers}
    try:
        listed |= {source for experiment in experiments.declared(family) for source in experiment.sources}
    except Exception as error:  # the check of experiments reports it
        if not isinstance(error, UserError):
            listed |= {path.name for path in folder.glob("*.py")}
    for path in sorted(folder.iterdir()):
        if path.suffix in (".cu", ".cuh", ".py"):
            yield (
                path.name in listed,
                f"kernels/{family}/{path.name}",
                "no record and no experiment names it; add a Kernel to family.py, or remove the file.",
            )


_NAMES = "errors stats timing operands operations registry experiments core.dtypes gpu.baselines gpu.l2_window"
FACE = tuple(f"gemmrepro.{name}" for name in f"{_NAMES} gates.bounds build.key build.toolkit".split())
"""Modules that kernels/ may import; for a package, its exported names but not its modules."""

OPEN_PACKAGE = "gemmrepro.ozaki"
"""A package whose modules are also public: the mathematics of two families."""

GPU_PACKAGES = frozenset({"cupy", "torch", "cutlass", "cuda", "triton", "nvidia", "nvmath"})
"""Packages that only some containers have, so a family imports them inside functions."""


def check_imports(family: str) -> Checks:
    """A family only imports the public face of the library; everything else may change without notice."""
    for name in ("family.py", "experiments.py", "tables.py"):
        path = paths.KERNELS_DIR / family / name
        if not path.is_file():
            continue
        try:
            tree = ast.parse(path.read_text())
        except SyntaxError:  # reported when the family is imported
            continue
        yield from _check_file(path, tree, f"kernels/{family}/{name}")


def _check_file(path: Path, tree: ast.Module, where: str) -> Checks:
    for line, module in _imported(ast.walk(tree)):
        if module.split(".")[0] == "gemmrepro":
            yield (
                module in FACE or module == OPEN_PACKAGE or module.startswith(f"{OPEN_PACKAGE}."),
                f"{where}, line {line}",
                f"it imports {module}, which is no part of the public face ({', '.join(FACE)}, {OPEN_PACKAGE}).",
            )
    early = sorted({module for _, module in _imported(tree.body) if module.split(".")[0] in GPU_PACKAGES})
    yield (
        not early,
        where,
        f"it imports {', '.join(early)} when it is read, where no GPU is; import inside the function.",
    )


def _imported(nodes: Iterator[ast.AST] | list[ast.stmt]) -> Iterator[tuple[int, str]]:
    """Line and module of each import; ``from gemmrepro import registry`` imports gemmrepro.registry."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module in ("gemmrepro", "gemmrepro.gpu", "gemmrepro.core", "gemmrepro.gates"):
                for alias in node.names:
                    yield node.lineno, f"{node.module}.{alias.name}"
            else:
                yield node.lineno, node.module


def check_claims(family: str) -> Checks:
    """Claims on it load against their schema, and name known kernels, metrics and published rows."""
    try:
        loaded = claims.load((family,))
    except UserError as error:
        yield (False, "articles", str(error))
        return
    for claim in loaded:
        yield (claim.statement, claim.id, "it states nothing.")


def check_experiments(family: str) -> Checks:
    """Experiments are complete, and refer to existing kernels."""
    where = f"kernels/{family}/experiments.py"
    if not experiments.path_of(family).is_file():
        return
    try:
        declared = experiments.declared(family)
    except UserError as error:
        yield (False, where, str(error))
        return
    except Exception as error:  # an import can raise anything
        yield (False, where, f"importing it fails with {type(error).__name__}: {error}")
        return
    for experiment in declared:
        yield from _check_experiment(experiment, where)


def _check_experiment(experiment: Experiment, file: str) -> Checks:
    where = f"{file}, {experiment.name}"
    known = {kernel.id for name in registry.family_names() for kernel in registry.kernels(name)}
    unknown = [kernel_id for kernel_id in experiment.kernels if kernel_id not in known]
    yield (not unknown, where, f"it runs {', '.join(unknown)}, which no family has.")
    yield (experiment.kernels or experiment.libraries, where, "it runs neither a kernel nor a library; name one.")
    yield (experiment.title and experiment.question, where, "it has no title, or asks no question in the report.")
    points = experiment.points(experiment.parameters)
    yield (points, where, "its parameters give no point to measure.")
    names = [figure.name for figure in experiment.figures]
    yield (
        not set(names) & set(registry.FIGURES),
        where,
        "one of its figures is called as a figure of the measurements.",
    )


def check_texts(family: str) -> Checks:
    """Each number in a family's findings.md is a cell of the reference recording."""
    try:
        texts.render(family, {})
    except UserError as error:
        where, _, what = str(error).partition(": ")
        yield (False, where, what)


CHECKS = (check_rungs, check_files, check_imports, check_claims, check_experiments, check_texts)


@dataclass(frozen=True)
class Problem:
    """A failed check: the kernel or file, and a sentence on what is wrong and what to do."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass
class Findings:
    """The number of passed checks, and a problem for each failed one."""

    passed: int = 0
    problems: list[Problem] = field(default_factory=list)

    def add(self, checks: Iterable[tuple[object, str, str]]) -> None:
        """Count the checks that hold, and record the place and the words of the others."""
        for holds, where, what in checks:
            if holds:
                self.passed += 1
            else:
                self.problems.append(Problem(where, what))


def main(options: Namespace) -> int:
    """Check the named families, by default all; 1 if there is a problem."""
    names = options.family or list(registry.family_names())
    return max([_report(name) for name in names], default=0)


def _report(name: str) -> int:
    findings = check_family(name)
    counts = f"{findings.passed} checks passed"
    if not findings.problems:
        print(f"{name}: {len(registry.kernels(name))} kernels, {_claims(name)} claims, {counts}")
        return 0
    print(f"{name}: {counts}, {len(findings.problems)} problems")
    for problem in findings.problems:
        print(f"  {problem}")
    return 1


def _claims(name: str) -> int:
    try:
        return len(claims.load((name,)))
    except UserError:
        return 0


def check_family(name: str) -> Findings:
    """Run all checks on the family called `name`. Raises UserError if there is none."""
    findings = Findings()
    kernels = _loaded(name, findings)
    for check in (check_identities,) if kernels else ():
        findings.add(check(name))
    if findings.problems:
        return findings
    for kernel in kernels:
        for check_kernel in OF_A_KERNEL:
            findings.add((holds, kernel.id, what) for holds, what in check_kernel(kernel))
    for check_whole in CHECKS:
        findings.add(check_whole(name))
    return findings


def _loaded(name: str, findings: Findings) -> tuple[Kernel, ...]:
    """The family's records; empty, with a problem in `findings`, if they cannot be imported."""
    if name not in registry.family_names():
        registry.family(name)  # raises, naming the known families
    where = f"kernels/{name}/family.py"
    try:
        kernels = registry.kernels(name)
    except UserError as error:
        findings.add([(False, where, str(error))])
        return ()
    except Exception as error:  # an import can raise anything
        findings.add([(False, where, f"importing it fails with {type(error).__name__}: {error}")])
        return ()
    findings.add([(kernels, where, "KERNELS is empty; add a record.")])
    return kernels
