"""A family only imports the public face of the library; everything else may change without notice."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from gemmrepro.check.findings import Findings
from gemmrepro.core import paths

FACE = (
    "gemmrepro.errors",
    "gemmrepro.stats",
    "gemmrepro.timing",
    "gemmrepro.operands",
    "gemmrepro.operations",
    "gemmrepro.registry",
    "gemmrepro.experiments",
    "gemmrepro.core.dtypes",
    "gemmrepro.gpu.baselines",
    "gemmrepro.gpu.l2_window",
    "gemmrepro.gates.bounds",
)
"""Modules that kernels/ may import; for a package, its exported names but not its modules."""

OPEN_PACKAGE = "gemmrepro.ozaki"
"""A package whose modules are also public: the mathematics of two families."""

GPU_PACKAGES = frozenset({"cupy", "torch", "cutlass", "cuda", "triton", "nvidia", "nvmath"})
"""Packages that only some containers have, so a family imports them inside functions."""


def check(family: str, findings: Findings) -> None:
    for name in ("family.py", "experiments.py", "tables.py"):
        path = paths.KERNELS_DIR / family / name
        if not path.is_file():
            continue
        try:
            tree = ast.parse(path.read_text())
        except SyntaxError:  # reported when the family is imported
            continue
        _check_file(path, tree, f"kernels/{family}/{name}", findings)


def _check_file(path: Path, tree: ast.Module, where: str, findings: Findings) -> None:
    for line, module in _imported(ast.walk(tree)):
        if module.split(".")[0] == "gemmrepro":
            findings.require(
                module in FACE or module == OPEN_PACKAGE or module.startswith(f"{OPEN_PACKAGE}."),
                f"{where}, line {line}",
                f"it imports {module}, which is no part of the public face ({', '.join(FACE)}, {OPEN_PACKAGE}).",
            )
    early = sorted({module for _, module in _imported(tree.body) if module.split(".")[0] in GPU_PACKAGES})
    findings.require(
        not early, where, f"it imports {', '.join(early)} when it is read, where no GPU is; import inside the function."
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
