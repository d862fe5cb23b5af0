"""A host without /etc/hosts, as the barest are: the image made there is the one that others make."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

from gemmrepro.host.containers import container_environment, make_caches
from gemmrepro.host.sif import filesystem_sha256

pytestmark = pytest.mark.containers

HERE = Path(__file__).parent

MAKE = """
import os, sys
from pathlib import Path
from gemmrepro.host.sif import RootFs
from gemmrepro.host.sif import folder_to_sif, wrap
from gemmrepro.host.workspace import workspace

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


def test_an_image_is_made_on_a_host_without_a_hosts_file(folder: Path) -> None:
    if shutil.which("apptainer") is None:
        pytest.skip("apptainer is not on PATH; run the tests as `envs/run pytest`")
    environ = os.environ | container_environment({}, cache=folder / "cache") | {"PYTHONPATH": str(ROOT / "workflow")}
    make_caches(environ)

    def make(name: str, remove: str) -> tuple[str, str]:
        (folder / name).mkdir()
        command = [HERE / "overlay", folder / f"{name}-overlay", "bash", "-c", f'{remove}; exec "$@"', "bash"]
        done = subprocess.run(
            [*command, sys.executable, "-c", MAKE, folder / name], env=environ, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout.splitlines()[-1], filesystem_sha256(folder / name / "small.sif", environ)

    bare, image = make("bare", "rm -f /etc/hosts")
    usual, same = make("usual", "touch /etc/hosts")
    assert (bare, usual) == ("no hosts", "hosts")
    assert image == same
