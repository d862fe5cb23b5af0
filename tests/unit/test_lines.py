"""Lines of code, with everything that is none."""

import pytest

from gemmrepro.errors import UserError
from gemmrepro.judge.metrics.calculated import calculation

LINES_OF = calculation("cute", "lines_of_code").__globals__["_lines_of"]

CPP = """\
// a comment
#include <x.h>  // and one behind code

/* a long
   one */
constexpr const char* TEXT = "// no comment /* here";  /* begins
and ends */ constexpr char QUOTE = '"';  // "
// continued \\
   here
int f() { return N; }
"""

PYTHON = '''\
"""What the module is."""

# a comment
import os  # behind code


def f(
    x: int,
) -> str:
    """One line."""
    text = """no docstring
# no comment either

"""
    return text + str(x)  # "
'''


@pytest.mark.parametrize(("name", "text", "lines"), [("x.cu", CPP, 4), ("x.py", PYTHON, 1 + 3 + 3 + 1)])
def test_docstrings_comments_and_blank_lines_are_left_out(tmp_path, name, text, lines):
    (tmp_path / name).write_text(text)
    assert LINES_OF(tmp_path / name) == lines
    for other, said in (("gone.cu", r"gone\.cu is missing"), ("x.rs", r"x\.rs is neither CUDA C\+\+")):
        with pytest.raises(UserError, match=said):
            LINES_OF(tmp_path / other)
