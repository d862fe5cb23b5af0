from __future__ import annotations

from pathlib import Path

import pytest
from support import copy_sources


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources alone, for tests that only plan."""
    copy = tmp_path_factory.mktemp("tree") / "gemmrepro"
    copy_sources(copy)
    return copy
