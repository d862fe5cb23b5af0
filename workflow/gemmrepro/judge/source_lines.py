"""Lines of code of a kernel's source, without comments, docstrings and blank lines.

A line counts if it holds any code, be it one bracket: in Python the formatter decides where lines break, in C++ the
author, both within 120 columns.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

from gemmrepro.errors import UserError

# A comment, or a literal, which may contain comment markers. Kernels use no raw strings.
_CPP = re.compile(r"//(?:\\\n|[^\n])*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def of_cpp(source: str) -> int:
    """Lines of code in CUDA C++. A digit separator (1'000) would be taken for a literal."""

    def blank(match: re.Match[str]) -> str:
        text = match[0]
        return "\n" * text.count("\n") if text.startswith("/") else text

    return sum(bool(line.strip()) for line in _CPP.sub(blank, source).splitlines())


def of_python(source: str) -> int:
    """Lines of code in Python, docstrings excluded."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        lines.difference_update(_docstring_lines(node))
    return len(lines)


def _docstring_lines(node: ast.AST) -> range:
    """The lines of the docstring that a module, class or function begins with."""
    if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) or not node.body:
        return range(0)
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return range(first.lineno, (first.end_lineno or first.lineno) + 1)
    return range(0)


def of_file(path: Path) -> int:
    """Lines of code in a source file.

    Raises:
        UserError: it is missing, or of a language that is not counted here.
    """
    count = {".py": of_python, ".cu": of_cpp, ".cuh": of_cpp}.get(path.suffix)
    if count is None:
        raise UserError(
            f"{path.name} is neither CUDA C++ (.cu, .cuh) nor Python; extend gemmrepro.judge.source_lines to count it."
        )
    if not path.is_file():
        raise UserError(f"{path} is missing; restore it.")
    return count(path.read_text())
