"""Reading YAML."""

from __future__ import annotations

import pytest

from gemmrepro.core import schemas


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_a_document_that_is_nested_too_deeply_raises_and_does_not_crash(opening):
    with pytest.raises(RecursionError):
        schemas.parse_yaml(opening * 100_000)
