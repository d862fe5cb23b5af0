"""Lines of code of a kernel's source: what is left without comments, docstrings and blank lines.

    python -m gemmrepro.judge.source_lines kernels/cute/4_three_stages.cu kernels/cute/dsl_three_stages.py

A line counts when any code stands on it, be it one bracket: the length of lines and where they are broken is the
formatter's doing in Python and the author's in C++, with the same 120 columns to fill in both.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from pathlib import Path

from gemmrepro.errors import UserError, run_stage

# A comment, or a literal, which may hold what looks like one. Raw strings are not among what kernels write.
_CPP = re.compile(r"//(?:\\\n|[^\n])*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)

_SILENT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


def of_cpp(source: str) -> int:
    """Lines of code in CUDA C++. A digit separator (1'000) would be taken for a literal."""

    def blank(found: re.Match[str]) -> str:
        text = found[0]
        return "\n" * text.count("\n") if text.startswith("/") else text

    return sum(bool(line.strip()) for line in _CPP.sub(blank, source).splitlines())


def of_python(source: str) -> int:
    """Lines of code in Python; a docstring is none."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                lines.difference_update(range(first.lineno, first.end_lineno + 1))
    return len(lines)


def of_file(path: Path) -> int:
    """Lines of code in a source file.

    Raises:
        UserError: it is missing, or of a language that is not counted here.
    """
    count = {".py": of_python, ".cu": of_cpp, ".cuh": of_cpp}.get(path.suffix)
    if count is None:
        raise UserError(f"{path.name} is neither CUDA C++ (.cu, .cuh) nor Python; teach gemmrepro.lines to count it.")
    if not path.is_file():
        raise UserError(f"{path} is missing; restore it.")
    return count(path.read_text())


def main() -> int:
    parser = argparse.ArgumentParser(prog="gemmrepro.lines", description="Count lines of code.")
    parser.add_argument("sources", nargs="+", type=Path)
    for path in parser.parse_args().sources:
        print(f"{of_file(path):5}  {path}")
    return 0


if __name__ == "__main__":
    run_stage(main)
