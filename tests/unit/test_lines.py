"""Lines of code, with everything that is none."""

import pytest

from gemmrepro import registry
from gemmrepro.errors import UserError
from gemmrepro.judge import source_lines

CPP = """\
// a comment
#include <x.h>  // and one behind code

/* a long
   one */
constexpr const char* TEXT = "// no comment /* here";  /* begins
and ends */ constexpr int N = 1;
constexpr char QUOTE = '"';  // "
// continued \\
   here
int f() {
    return N;  /* x */
}
"""

PYTHON = '''\
"""What the module is.

Over two paragraphs."""

# a comment
import os  # behind code


def f(
    x: int,
) -> str:
    """One line."""
    text = """no docstring
# no comment either

"""
    "only the first string is a docstring"
    return text + str(x)  # "


class C:
    """Only this."""
'''


def test_comments_and_blank_lines_of_cpp_are_left_out():
    assert source_lines.of_cpp(CPP) == 7
    assert source_lines.of_cpp("") == source_lines.of_cpp("\n // x \n/* y\n*/\n") == 0


def test_docstrings_comments_and_blank_lines_of_python_are_left_out():
    assert source_lines.of_python(PYTHON) == 1 + 3 + 4 + 1 + 1 + 1
    assert source_lines.of_python("") == source_lines.of_python('"""Only a docstring."""\n# and a comment\n') == 0


def test_every_source_of_the_registry_can_be_counted():
    for kernel in registry.kernels():
        assert 0 < source_lines.of_file(kernel.source_path) <= len(kernel.source_path.read_text().splitlines())


def test_a_source_that_cannot_be_counted_is_named(tmp_path):
    with pytest.raises(UserError, match=r"gone\.cu is missing"):
        source_lines.of_file(tmp_path / "gone.cu")
    with pytest.raises(UserError, match=r"x\.rs is neither CUDA C\+\+"):
        source_lines.of_file(tmp_path / "x.rs")
