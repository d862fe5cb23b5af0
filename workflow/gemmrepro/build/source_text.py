"""What a compiler reads of a source: its tokens. Comments and white space between tokens are no part of it."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from gemmrepro.build.toolkit import shown
from gemmrepro.core import trees
from gemmrepro.errors import UserError

_SPLICE = r"\\[ \t]*\r?\n"
_TOKEN = re.compile(
    rf"""
    (?P<comment>//(?:{_SPLICE}|[^\n])* | /\*.*?\*(?:{_SPLICE})*/)
    | (?P<gap>{_SPLICE} | [ \t\v\f\r]+)
    | (?P<line>\n)
    | (?P<token>
        (?:u8|[uUL])?R"(?P<fence>[^\s()\\"]{{0,16}})\(.*?\)(?P=fence)"  # a raw string, whatever it holds
      | (?:u8|[uUL])?"(?:\\\r?\n|\\.|[^"\\\n])*"
      | (?:u8|[uUL])?'(?:\\.|[^'\\\n])*'
      | \.?[0-9](?:[eEpP][+-]|'?[\w.])*                               # a number: 1e-5f, 0x1p-3, 1'000
      | [^\W\d][\w$]*
      | <<<|>>>|<<=|>>=|<=>|->\*|\.\.\.                               # of operators the longest, as the compiler does
      | \+\+|--|<<|>>|[-+*/%&|^<>=!]=|&&|\|\||->|::|\#\#|\.\*|<[:%]|[:%]>|%:
      | .
    )
    """,
    re.DOTALL | re.VERBOSE,
)


def cuda_tokens(text: str) -> Iterator[str]:
    """Tokens of CUDA C++. A directive's line ends with the token "\\n".

    White space counts in three places alone: inside literals, at the end of a directive, and before the parenthesis
    that may follow the name of a macro. (It would also count in the operand of #, which none of the kernels' needs.)
    """
    directive: list[str] = []
    spaced, starts = True, True
    for match in _TOKEN.finditer(text):
        if match.lastgroup == "line":
            if directive:
                yield "\n"
            directive, starts, spaced = [], True, True
        elif match["token"] is None:
            spaced = True
        else:
            token = match["token"]
            if directive or (starts and token in ("#", "%:")):
                directive.append(token)
                if directive[1:2] == ["define"] and len(directive) == 4 and token == "(" and spaced:
                    token = " ("
            yield token
            starts, spaced = False, False
    if directive:
        yield "\n"


def without_comments(text: str) -> str:
    """CUDA C++ with a space in place of every comment."""
    return _TOKEN.sub(lambda match: " " if match["comment"] else match[0], text)


def source_hash(path: Path) -> str:
    """The SHA-256 of what a compiler reads of a source, in hexadecimal. Raises UserError if the file is missing."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{shown(path)} is missing; restore it, or correct the record in family.py.") from None
    return _hash(text, path.suffix == ".py")


@cache
def _hash(text: str, python: bool) -> str:
    read = trees.exact_text(ast.parse(text)) if python else "\0".join(cuda_tokens(text))
    return hashlib.sha256(read.encode()).hexdigest()
