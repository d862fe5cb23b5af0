"""What cuTile compiles just in time does what the build stage's binaries do, in every element type and launch."""

import pytest
from gpu_tools import runs

from gemmrepro import registry
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.measure import just_in_time

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("family", ["cutile", "ozaki"])
def test_both_ways_write_the_same_bits(family, session, built, monkeypatch):
    try:
        just_in_time.require_compiler()
    except UserError as error:
        pytest.skip(str(error))
    monkeypatch.chdir(ROOT)
    kernels = [
        kernel for kernel in registry.kernels(family) if kernel.compiler_traits.just_in_time and runs(kernel, session)
    ]
    verdicts = just_in_time.check_all(kernels, built)
    assert len(verdicts) == len(kernels) >= 10
    for kernel in kernels:
        expected = "passed" if kernel.run.program is None else "skipped"
        assert verdicts[kernel.id]["status"] == expected, verdicts[kernel.id]
