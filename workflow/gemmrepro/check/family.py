"""Checks of a whole family and its files against the contract.

Each yields where something is wrong, and what.
"""

from __future__ import annotations

import ast
import re
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from gemmrepro import experiments, registry
from gemmrepro.check.kernel import CHECKS as OF_A_KERNEL
from gemmrepro.check.kernel import included
from gemmrepro.core import paths
from gemmrepro.errors import UserError
from gemmrepro.experiments import Experiment, paper_figures, tables
from gemmrepro.judge import calculation, claims
from gemmrepro.paper import findings as texts
from gemmrepro.registry import Kernel, ladders

Problems = Iterator[tuple[str, str]]


def check_identities(family: str) -> Problems:
    """Ids and the family's own record are consistent; all other checks depend on them."""
    record, kernels = registry.family(family), registry.kernels(family)
    where = f"kernels/{family}/family.py"
    if record.name != family:
        yield where, f"FAMILY.name is '{record.name}'; the folder is '{family}'."
    known = paper_figures.of_rungs(family)
    if unknown := [name for name in record.figures if name not in known]:
        yield where, f"FAMILY.figures names {', '.join(unknown)}; known are {', '.join(known)}."
    for kernel in kernels:
        if kernel.family != family:
            yield kernel.id, f"its id must begin with '{family}.', after the folder that it is in."
    for kernel_id, count in Counter(kernel.id for kernel in kernels).items():
        if count != 1:
            yield kernel_id, f"{count} records have this id; rename all but one."


def check_rungs(family: str) -> Problems:
    """A family's rungs are unique and in order."""
    return _check_order(registry.kernels(family))


def _check_order(kernels: tuple[Kernel, ...]) -> Problems:
    """Each rung has one source, and rungs are in numerical order."""
    climbed = [kernel for kernel in kernels if kernel.timing.baseline]
    sources: dict[str, str] = {}
    last: dict[tuple[str, ...], tuple[Kernel, tuple[int, ...]]] = {}
    for kernel in climbed:
        first = sources.setdefault(kernel.rung, kernel.source)
        if first != kernel.source:
            yield kernel.id, f"its rung {kernel.rung} is that of {first} too; give it another."
        parsed = _parsed(kernel.rung)
        if parsed is None or ladders.original(kernel) is not None:
            continue
        ladder, number = parsed
        before, previous = last.get(ladder, (kernel, number))
        if previous > number:
            yield kernel.id, f"rung {kernel.rung} follows {before.rung} in KERNELS; order the records by rung."
        last[ladder] = kernel, number


def _parsed(rung: str) -> tuple[tuple[str, ...], tuple[int, ...]] | None:
    """The ladder and the number of a rung: ``L7.1`` has ("L", "", "") and (7, 1); None for a rung without a number."""
    match = re.fullmatch(r"([A-Za-z]*)(\d+)([a-z]*)((?:\.\d+)*)(.*)", rung)
    if match is None:
        return None
    prefix, major, branch, minor, tail = match.groups()
    return (prefix, branch, tail), (int(major), *(int(part) for part in minor.split(".")[1:]))


DECLARATIONS = ("family.py", "figures.py", experiments.FILE, tables.FILE, calculation.FILE)
"""Python files of a family that are not sources."""


def check_files(family: str) -> Problems:
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
            if path.name not in listed:
                yield (
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


def check_imports(family: str) -> Problems:
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


def _check_file(path: Path, tree: ast.Module, where: str) -> Problems:
    for line, module in _imported(ast.walk(tree)):
        if module.split(".")[0] == "gemmrepro":
            if module not in FACE and module != OPEN_PACKAGE and not module.startswith(f"{OPEN_PACKAGE}."):
                yield (
                    f"{where}, line {line}",
                    f"it imports {module}, which is no part of the public face ({', '.join(FACE)}, {OPEN_PACKAGE}).",
                )
    early = sorted({module for _, module in _imported(tree.body) if module.split(".")[0] in GPU_PACKAGES})
    if early:
        yield where, f"it imports {', '.join(early)} when it is read, where no GPU is; import inside the function."


def _imported(nodes: Iterator[ast.AST] | list[ast.stmt]) -> Iterator[tuple[int, str]]:
    """Line and module of each import; ``from gemmrepro import registry`` imports gemmrepro.registry."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = node.module in ("gemmrepro", "gemmrepro.gpu", "gemmrepro.core", "gemmrepro.gates")
            names = [f"{node.module}.{alias.name}" for alias in node.names] if whole else [node.module]
            yield from ((node.lineno, name) for name in names)


def check_claims(family: str) -> Problems:
    """Claims on it load against their schema, and name known kernels, metrics and published rows."""
    try:
        loaded = claims.load((family,))
    except UserError as error:
        yield "articles", str(error)
        return
    for claim in loaded:
        if not claim.statement:
            yield claim.id, "it states nothing."


def check_experiments(family: str) -> Problems:
    """Experiments are complete, and refer to existing kernels."""
    where = f"kernels/{family}/experiments.py"
    if not experiments.path_of(family).is_file():
        return
    try:
        declared = experiments.declared(family)
    except UserError as error:
        yield where, str(error)
        return
    except Exception as error:  # an import can raise anything
        yield where, f"importing it fails with {type(error).__name__}: {error}"
        return
    for experiment in declared:
        yield from _check_experiment(experiment, where)


def _check_experiment(experiment: Experiment, file: str) -> Problems:
    where = f"{file}, {experiment.name}"
    known = {kernel.id for name in registry.family_names() for kernel in registry.kernels(name)}
    unknown = [kernel_id for kernel_id in experiment.kernels if kernel_id not in known]
    if unknown:
        yield where, f"it runs {', '.join(unknown)}, which no family has."
    if not experiment.kernels and not experiment.libraries:
        yield where, "it runs neither a kernel nor a library; name one."
    if not experiment.title or not experiment.question:
        yield where, "it has no title, or asks no question in the report."
    points = experiment.points(experiment.parameters)
    if not points:
        yield where, "its parameters give no point to measure."


def check_texts(family: str) -> Problems:
    """Each number in a family's findings.md is a cell of the reference recording."""
    try:
        texts.render(family, {})
    except UserError as error:
        where, _, what = str(error).partition(": ")
        yield where, what


CHECKS = (check_rungs, check_files, check_imports, check_claims, check_experiments, check_texts)


def main(options: Namespace) -> int:
    """Check the named families, by default all; 1 if there is a problem."""
    wrong = 0
    for name in options.family or registry.family_names():
        if problems := check_family(name):
            wrong = 1
            print(f"{name}: {len(problems)} problems", *problems, sep="\n  ")
        else:
            counts = f"{len(registry.kernels(name))} kernels, {len(claims.load((name,)))} claims"
            print(f"{name}: {counts}, all as the contract says")
    return wrong


def check_family(name: str) -> list[str]:
    """What is wrong with the family called `name`, each after the kernel or file. Raises UserError if there is none."""
    if name not in registry.family_names():
        registry.family(name)  # raises, naming the known families
    where = f"kernels/{name}/family.py"
    try:
        kernels = registry.kernels(name)
    except UserError as error:
        return [f"{where}: {error}"]
    except Exception as error:  # an import can raise anything
        return [f"{where}: importing it fails with {type(error).__name__}: {error}"]
    if not kernels:
        return [f"{where}: KERNELS is empty; add a record."]
    if wrong := [f"{place}: {what}" for place, what in check_identities(name)]:
        return wrong
    own = [f"{kernel.id}: {what}" for kernel in kernels for check in OF_A_KERNEL for what in check(kernel)]
    return own + [f"{place}: {what}" for check in CHECKS for place, what in check(name)]
