"""The rule `wheel`, of a finished run."""

from __future__ import annotations

import zipfile
from pathlib import Path

from support import snakemake


def test_a_finished_run_packs_its_binaries_into_a_wheel(finished: Path) -> None:
    done = snakemake("--use-singularity", "wheel", folder=finished)
    assert done.returncode == 0, done.stdout
    (wheel,) = (finished / "results/wheel").glob("gemmrepro_blas-*.whl")
    with zipfile.ZipFile(wheel) as held:
        packed = [name for name in held.namelist() if name.endswith(".fatbin")]
        built = {name: (finished / "results/build/cuda13" / Path(name).name).read_bytes() for name in packed}
        assert len(packed) == 7 and all(held.read(name) == built[name] for name in packed)
