"""No network once the images are there: an edited kernel is compiled and gated, and a missing image says what to do."""

import subprocess
from pathlib import Path

import pytest
from support import ROOT

pytestmark = pytest.mark.containers

KERNEL = "kernels/ladder/1_naive.cu"
VERDICT = "results/gates/ladder.naive.json"

# The checkout under an overlay at its own path, which its environment names, and a network without interfaces.
OFFLINE = """
set -euo pipefail
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$1"
cd "$1"
shift 2
exec "$@"
"""


def offline(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run `command` in a copy of the checkout, whose changes go to `folder`/upper, with no network."""
    for name in ("upper", "work"):
        (folder / name).mkdir(exist_ok=True)
    unshare = ["unshare", "--mount", "--net", "--propagation", "private", "bash", "-c", OFFLINE, "offline"]
    return subprocess.run(
        [*unshare, ROOT, folder, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_an_edited_kernel_is_built_and_gated_and_a_missing_image_is_explained(folder: Path, default_run: str) -> None:
    run = f"snakemake --use-singularity --cores 1 {VERDICT}"
    edit = f"echo 'static_assert(sizeof(float) == 4);' >>{KERNEL}"
    done = offline(folder, "bash", "-c", f"! ip route | grep . && {edit} && {run}")
    assert done.returncode == 0, done.stdout[-4000:]
    assert (folder / "upper" / VERDICT).is_file()
    assert (folder / "upper/results/build/cuda13/ladder.naive.fatbin").is_file()

    gone = "rm resources/images/report.sif && PYTHONPATH=workflow python3 -m gemmrepro image --env report"
    gone += (
        " --recipe docker/report.Dockerfile --sif resources/images/report.sif --lock resources/images/report.lock.json"
    )
    done = offline(folder, "bash", "-c", gone)
    assert done.returncode == 1
    assert "no network: the packages for a container image could not be downloaded" in done.stdout
    assert "or copy resources/images/" in done.stdout
