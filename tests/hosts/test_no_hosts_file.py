"""A host without /etc/hosts, as the barest are: the image made there is the one that others make; and broken images."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from support import ROOT

from gemmrepro.errors import UserError
from gemmrepro.host.containers import container_environment, make_caches
from gemmrepro.host.sif import filesystem_sha256

pytestmark = pytest.mark.containers

MAKE = """
import os, sys
from pathlib import Path
from gemmrepro.host.sif import RootFs, folder_to_sif, wrap
from gemmrepro.host.builders import workspace

folder = Path(sys.argv[1])
(folder / "root/etc").mkdir(parents=True)
(folder / "root/etc/greeting").write_text("hello")
for path in ("etc/greeting", "etc", ""):
    os.utime(folder / "root" / path, (0, 0))
with workspace(folder, "small", os.environ) as work:
    squashed = work.path / "root.squashfs"
    folder_to_sif(RootFs(folder / "root", {"PATH": "/bin"}), {"title": "small"}, "apptainer", squashed, work)
    wrap(squashed, folder / "small.sif", "apptainer", work)
print("hosts" if Path("/etc/hosts").exists() else "no hosts")
"""


def test_an_image_is_made_on_a_host_without_a_hosts_file_and_a_broken_one_is_said(folder: Path, in_overlay) -> None:
    if shutil.which("apptainer") is None:
        pytest.skip("apptainer is not on PATH; run the tests as `envs/run pytest`")
    environ = os.environ | container_environment({}, cache=folder / "cache") | {"PYTHONPATH": str(ROOT / "workflow")}
    make_caches(environ)

    def make(name: str, remove: str) -> tuple[str, Path]:
        (folder / name).mkdir()
        command = ["bash", "-c", f'{remove}; exec "$@"', "bash", sys.executable, "-c", MAKE, folder / name]
        done = in_overlay(folder / f"{name}-overlay", *command, **environ)
        return done.stdout.splitlines()[-1], folder / name / "small.sif"

    bare, image = make("bare", "rm -f /etc/hosts")
    usual, same = make("usual", "touch /etc/hosts")
    assert (bare, usual) == ("no hosts", "hosts")
    assert filesystem_sha256(image, environ) == filesystem_sha256(same, environ)
    same.write_bytes(same.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"small\.sif is cut short"):
        filesystem_sha256(same, environ)
    same.write_bytes(b"not an image")
    with pytest.raises(UserError, match="no image that Apptainer can read"):
        filesystem_sha256(same, environ)
