"""Which of our own modules a stage runs: the files whose edit must rerun its rules.

Snakemake's code trigger sees the rule, not what it imports, so the rules list these as inputs.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def imports(path: Path) -> set[str]:
    """Names of the gemmrepro modules that the file imports, at any depth of its code."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            names |= {alias.name.removeprefix("gemmrepro.") for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "gemmrepro":
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("gemmrepro."):
            names.add(node.module.removeprefix("gemmrepro."))
    return {name for name in names if (PACKAGE / f"{name}.py").is_file()}


@cache
def closure(stage: str) -> tuple[str, ...]:
    """Paths, relative to the repository's root, of module `stage` and all of ours that it imports, sorted."""
    seen: set[str] = set()
    waiting = [stage]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += imports(PACKAGE / f"{name}.py")
    return tuple(sorted(f"workflow/gemmrepro/{name}.py" for name in seen))
