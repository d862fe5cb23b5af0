from pathlib import Path

import cpu_grid
import pytest

from gemmrepro.build import cutile
from gemmrepro.registry import card


@pytest.fixture(autouse=True)
def nothing_compiled_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test compiles anew: a process keeps what cuTile's compiler returned."""
    monkeypatch.setattr(cutile, "_COMPILED", {})


@pytest.fixture(autouse=True)
def the_reference_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that opens a GPU, or tunes, leaves neither a card nor a choice of constants behind."""
    monkeypatch.setattr(card, "_at_hand", card.REFERENCE)
    monkeypatch.setenv("GEMMREPRO_TUNED", "h200")


@pytest.fixture(scope="session")
def precompiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the precompiled cpu_grid.hpp."""
    return cpu_grid.precompile(tmp_path_factory.mktemp("precompiled"))
