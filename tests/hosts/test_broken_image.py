"""An image that is cut short, or none, is said to be."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from gemmrepro.errors import UserError
from gemmrepro.host.containers import container_environment, make_caches
from gemmrepro.host.sif import RootFs, filesystem_sha256, folder_to_sif, wrap
from gemmrepro.host.workspace import workspace

pytestmark = pytest.mark.containers


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Where Apptainer keeps its keys and caches: away from this user's."""
    if shutil.which("apptainer") is None:
        pytest.skip("apptainer is not on PATH; run the tests as `envs/run pytest`")
    home = tmp_path / "home"
    home.mkdir()
    environ = {**os.environ, **container_environment({}, cache=tmp_path / "cache"), "HOME": str(home)}
    environ.pop("APPTAINER_CONFIGDIR", None)
    make_caches(environ)
    return environ


def small_image(folder: Path, environ: Mapping[str, str]) -> Path:
    root, sif = folder / "root", folder / "small.sif"
    (root / "etc").mkdir(parents=True)
    (root / "etc/greeting").write_text("hello\n" * 1000)
    with workspace(folder, "small", environ) as work:
        squashed = work.path / "root.squashfs"
        folder_to_sif(RootFs(root, {"PATH": "/bin"}), {"title": "small"}, "apptainer", squashed, work)
        wrap(squashed, sif, "apptainer", work)
    return sif


def test_what_is_no_image_and_what_is_cut_short_is_said(tmp_path: Path, environ: dict[str, str]) -> None:
    sif = small_image(tmp_path, environ)
    whole = sif.read_bytes()
    sif.write_bytes(whole[:-100])
    with pytest.raises(UserError, match=r"small\.sif is cut short"):
        filesystem_sha256(sif, environ)
    sif.write_bytes(b"not an image")
    with pytest.raises(UserError, match="no image that Apptainer can read"):
        filesystem_sha256(sif, environ)
