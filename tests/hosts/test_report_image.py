"""The report's image in Docker, with the checkout mounted: it does what follows the build, as the containers do."""

import shutil
import sys
from pathlib import Path

import pytest
from support import ROOT, copy_sources

pytestmark = pytest.mark.containers

HERE = Path(__file__).parent
AGAIN = ("results/verdicts.json", "results/figures/memory/histogram.svg")


def test_docker_judges_and_draws_in_the_reports_image(folder: Path, default_run: str, in_overlay) -> None:
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the image has Python 3.11, and cannot use this environment's Snakemake")
    own = folder / "report"
    checkout = own / "gemmrepro"
    copy_sources(checkout)
    shutil.copytree(ROOT / "results", checkout / "results", symlinks=True)
    for name in AGAIN:
        (checkout / name).unlink()
    run = [sys.executable, "-m", "snakemake", "--cores", "1", "--rerun-triggers", "mtime", "--", *AGAIN]
    session = [HERE / "engine", "docker", own, HERE / "run_image", ROOT / "resources/images/report.sif", checkout, *run]
    # The image has no Snakemake; envs/run would make an environment with it, from the network.
    mounted = [f"--volume {path}:{path}:ro" for path in {sys.prefix, sys.base_prefix} if path != "/usr"]
    in_overlay(own / "overlay", *session, DOCKER_RUN_OPTIONS=" ".join([*mounted, "--env HOME=/tmp"]))
    for name in AGAIN:
        assert (checkout / name).read_bytes() == (ROOT / name).read_bytes(), name
    assert (own / "left").read_text() == ""
