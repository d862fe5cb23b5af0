"""Reading YAML."""

from __future__ import annotations

import pytest

from gemmrepro.core import yaml_text


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_a_document_that_is_nested_too_deeply_raises_and_does_not_crash(opening):
    with pytest.raises(RecursionError):
        yaml_text.parse(opening * 100_000)
