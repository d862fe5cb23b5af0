"""Rings, turns and hand-overs of kernels, under every order of events that the programming model allows.

compute-sanitizer sees no hazard between TMA, wgmma and threads. Here the kernels' own sources run against a model
(hopper_grid.hpp, mma_grid.hpp) in which copies and products take place as late, as early or as randomly as PTX allows;
not so those of kernels/cute, whose barriers are in headers of CUTLASS. Bugs planted in the protocols must show.
"""

import shutil

import hopper_grid
import pytest
import yaml
from rings import RINGS

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH")


@pytest.mark.parametrize("name", RINGS)
def test_every_order_gives_the_product(name: str) -> None:
    assert RINGS[name].problem() == ""


MECHANISMS = yaml.safe_load((hopper_grid.FOLDER / "data/ring_plants.yaml").read_text())
PLANTS = [
    (what, ring, pattern, replacement, int(which or 0))
    for what, rows in MECHANISMS.items()
    for pattern, replacement, rings in rows
    for ring, _, which in (target.partition("#") for target in rings.split())
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: f"{plant[1]}-{plant[0]}")
def test_a_planted_bug_shows(plant: tuple[str, str, str, str, int]) -> None:
    _, ring, pattern, replacement, which = plant
    planted = hopper_grid.with_plant(RINGS[ring].text(), pattern, replacement, which)
    assert RINGS[ring].problem(planted) != ""
