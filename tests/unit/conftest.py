from __future__ import annotations

from pathlib import Path

import cpu_grid
import pytest


@pytest.fixture(scope="session")
def precompiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the precompiled cpu_grid.hpp."""
    return cpu_grid.precompile(tmp_path_factory.mktemp("precompiled"))
