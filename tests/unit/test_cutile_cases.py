"""The smallest cases of what cuTile's compiler does not do on Hopper: that it still does not, in machine code."""

import re

import pytest
from support import in_cuda13

from gemmrepro.core import paths

CASES = paths.KERNELS_DIR / "cutile" / "cases"
READ = """
import subprocess, sys
from dataclasses import replace
from pathlib import Path
from gemmrepro import registry
from gemmrepro.build import cutile
like, source, constant, hint, folder = sys.argv[1:]
defines = {"PARAMETERS": constant, "HINTS": hint} if hint else {"PARAMETERS": constant}
kernel = replace(registry.kernel(like), source=source).with_code(entry=Path(source).stem, defines=defines)
images = cutile.compile_cubins(kernel, ["90"], 1, Path(folder))
print(subprocess.run(["cuobjdump", "-sass", str(images["90"])], capture_output=True, text=True, check=True).stdout)
"""


def machine_code(folder, like: str, case: str, constant: str, hint: str = "") -> str:
    """The listing of a case, compiled for sm_90 with the types and promises of the kernel `like`."""
    folder.mkdir()
    answer = in_cuda13(folder, "python3", "-c", READ, like, str(CASES / f"{case}.py"), constant, hint, str(folder))
    assert answer.returncode == 0, answer.stdout
    return answer.stdout


@pytest.mark.containers
def test_with_two_blocks_a_multiprocessor_no_wgmma_stays_in_flight(default_run, tmp_path):
    waits = {}
    for hint in ("", "num_worker_warps=8", "occupancy=2"):
        code = machine_code(tmp_path / f"hint{hint}", "cutile.matmul_bf16", "occupancy", "STEPS=64", hint)
        assert re.search(r"HGMMA\.64x\d+x16\.F32\.BF16", code)
        waits[hint] = set(re.findall(r"WARPGROUP\.DEPBAR\.LE gsb0, (0x\d)", code))
    assert waits == {"": {"0x0", "0x1"}, "num_worker_warps=8": {"0x0", "0x1"}, "occupancy=2": {"0x0"}}


@pytest.mark.containers
def test_mma_on_fp64_is_not_fused_and_outer_products_are(default_run, tmp_path):
    code = machine_code(tmp_path / "mma", "cutile.matmul_fp64", "fused", "FUSED=0")
    assert len(re.findall(r"\bDMUL\b", code)) >= 64 and len(re.findall(r"\bDADD\b", code)) >= 64
    assert not re.search(r"\bDFMA\b|\bDMMA\b", code)
    code = machine_code(tmp_path / "outer", "cutile.matmul_fp64", "fused", "FUSED=1")
    assert len(re.findall(r"\bDFMA\b", code)) >= 64 and not re.search(r"\bDMUL\b|\bDADD\b", code)
