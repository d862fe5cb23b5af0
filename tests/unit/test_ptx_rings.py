"""CuTe's Python port on Hopper as the DSL compiles it: its PTX on the CPU, under every order of events that PTX allows.

test_rings.py runs the sources of kernels/hopper; a kernel of the Python DSL has none that a C++ compiler could read. So
ptx_grid.py runs what became of it, instruction by instruction, under the same model. What ptxas makes of it is left to
the promises and to the numerical gate.
"""

import shutil
from dataclasses import replace

import hopper_grid
import ptx_grid
import pytest
import rings
from support import in_cuda13

from gemmrepro import registry
from gemmrepro.operations import Shape

PORT = registry.kernel("cute.dsl_hopper")
RING = replace(
    rings.gemm(
        PORT,
        (
            # More steps than stages and than pieces, several tiles a cluster, tails; fewer steps; one, and no tile.
            *(rings.Case(Shape(264, 520, 328)), rings.Case(Shape(520, 264, 128))),
            rings.Case(Shape(256, 256, 64), clusters=3),
        ),
    ),
    as_model=lambda ptx: ptx_grid.translated(ptx, PORT.code.entry),
    header="ptx_words.hpp",
)
TRACE = """
import sys
from dataclasses import replace
from pathlib import Path
from gemmrepro import registry
from gemmrepro.build.cute_dsl import compile_ptx
for source in map(Path, sys.argv[1:]):
    folder = source.with_suffix("")
    folder.mkdir()
    compile_ptx(replace(registry.kernel("cute.dsl_hopper"), source=str(source)), ["90a"], 1, folder)
"""
PLANTS = {
    # what: (pattern, replacement, occurrence)
    "no wait for an empty stage": (r"cute\.arch\.mbarrier_wait\(empty \+ stage, parity \^ 1\)", "pass", 0),
    "both blocks load the same share": (r"col \* CLUSTER \+ rank", "col * CLUSTER", 0),
    "no fence before the store": (r"cute\.arch\.fence_proxy\(.*\)", "pass", 0),
    "sums rounded before they are done": (r"warpgroup\.wait_group\(0\)", "pass", 0),
    "a cluster without a tile stores": (r"if not first:  # a cluster", "if rows > 0:  # a cluster", 0),
    "the L2 policy of the DSL": (r"EVICT_NORMAL = 1 << 60", "EVICT_NORMAL = 0", 0),
}


@pytest.fixture(scope="module")
def compiled(default_run: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """PTX of the source, under "", and of the source with each plant."""
    folder, text = tmp_path_factory.mktemp("sources"), PORT.source_path.read_text()
    sources = {"": text} | {what: hopper_grid.with_plant(text, *plant) for what, plant in PLANTS.items()}
    paths = {what: folder / f"source_{number}.py" for number, what in enumerate(sources)}
    for what, path in paths.items():
        path.write_text(sources[what])
    answer = in_cuda13(folder, "python3", "-c", TRACE, *map(str, paths.values()))
    assert answer.returncode == 0, answer.stdout
    return {what: (path.with_suffix("") / "sm_90a.ptx").read_text() for what, path in paths.items()}


@pytest.mark.containers
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH")
@pytest.mark.parametrize("plant", ["", *PLANTS])
def test_every_order_gives_the_product_and_planted_bugs_show(plant: str, compiled: dict[str, str]) -> None:
    assert (RING.problem(compiled[plant]) != "") == bool(plant)
