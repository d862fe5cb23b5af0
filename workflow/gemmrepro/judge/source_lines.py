"""Lines of code of a kernel's source, without comments, docstrings and blank lines."""

from __future__ import annotations

from pathlib import Path

from pygments.lexers.c_cpp import CppLexer
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, String

from gemmrepro.errors import UserError

_LEXERS = {".py": PythonLexer, ".cu": CppLexer, ".cuh": CppLexer}


def of_file(path: Path) -> int:
    """Lines with any code, be it one bracket: in Python the formatter decides where they break, in C++ the author.

    Raises:
        UserError: the file is missing, or of a language that is not counted here.
    """
    if path.suffix not in _LEXERS:
        raise UserError(
            f"{path.name} is neither CUDA C++ (.cu, .cuh) nor Python; extend gemmrepro.judge.source_lines to count it."
        )
    if not path.is_file():
        raise UserError(f"{path} is missing; restore it.")
    lines: set[int] = set()
    line = 1
    for kind, text in _LEXERS[path.suffix](stripnl=False).get_tokens(path.read_text()):
        # A directive is code, which the lexer calls a comment.
        directive = kind in Comment.Preproc or kind in Comment.PreprocFile
        if (kind not in Comment or directive) and kind not in String.Doc:
            lines.update(line + place for place, part in enumerate(text.split("\n")) if part.strip())
        line += text.count("\n")
    return len(lines)
