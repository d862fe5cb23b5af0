"""Level 8 without a GPU: which form and plan a shape gets, and memory that belongs to the caller."""

import math

import numpy as np

from gemmrepro import registry
from gemmrepro.core.files import load_module
from gemmrepro.core.paths import KERNELS_DIR
from gemmrepro.experiments import path_of
from gemmrepro.operations import Shape
from gemmrepro.registry import card

DECLARED = load_module("hopper_experiments", path_of("hopper"))


def test_the_experiments_products_are_exact_in_fp16() -> None:
    a, b, exact = DECLARED.operands(128, 1, np)
    assert (exact.astype(np.float64) == a.astype(np.float64).T @ b.astype(np.float64)).all()
    assert np.abs(exact).max() < 2048, "so is every partial sum, an integer below fp16's 2048"


def test_shapes_are_drawn_the_same_every_time() -> None:
    listed = DECLARED.shapes(19)
    assert listed == DECLARED.shapes(19) and listed != DECLARED.shapes(0)
    drawn = [[shape[axis] for axis in "mnk"] for shape in listed if shape["kind"] == "drawn"]
    assert len(drawn) == DECLARED.DRAWN and len(listed) == len({tuple(shape.values()) for shape in listed})
    assert sum(all(length % 16 == 8 for length in one) for one in drawn) >= DECLARED.DRAWN // 2


FORMS = load_module("hopper_family", KERNELS_DIR / "hopper/family.py")


def test_the_form_follows_the_cards_cap() -> None:
    """Without a known cap cycles decide; the lower the cap, the less energy the chosen form takes."""
    shape, chosen = Shape.cube(4096), []
    for watts in (float("inf"), 700.0, 300.0):
        with card.of(card.Card(132, watts)):
            chosen.append(FORMS._FORMS[FORMS.best_form(shape)])
    assert chosen[0].cycles(shape) == min(form.cycles(shape) for form in FORMS._FORMS)
    kernel = registry.kernel("hopper.by_energy")
    assert kernel.launch(shape) == kernel.at(shape).launch(shape) and kernel.launch(shape).early
    joules = [form.joules(shape) for form in chosen]
    assert joules[0] > joules[1] >= joules[2]


def test_a_plan_follows_the_shape() -> None:
    """Few tiles divide K, few rows exchange operands, and rows that begin anywhere are loaded for several blocks."""
    assert FORMS.best_plan(Shape(512, 512, 65536), 132).cluster[2] > 1
    assert FORMS.best_plan(Shape(8, 28672, 4096), 132).form.exchanged
    rows, cols, _ = FORMS.best_plan(Shape(4104, 4104, 4104), 132).cluster
    assert rows * cols > 1
    assert FORMS.best_plan(Shape(512, 512, 512), 66).fit(66) < FORMS.best_plan(Shape(512, 512, 512), 132).fit(132)


def test_every_plan_can_be_launched() -> None:
    """Shared memory, boxes and clusters within the hardware's limits; a cluster for each tile where K is in parts."""
    for plan in FORMS._PLANS:
        shape = Shape(1000, 776, 8200)
        launch, maps = plan.launch(shape), plan.variant().tensor_maps
        assert launch.shared_bytes <= 227 * 1024 and math.prod(plan.cluster) <= 8
        assert all(rows <= 256 for rows, _ in (made.box for made in maps.values()))
        if plan.cluster[2] > 1:
            assert launch.grid[0] == math.prod(plan.tiles(shape)) * plan.cluster[0]
        assert all(blocks % count == 0 for blocks, count in zip(launch.grid, plan.cluster, strict=True))
        for sms in (14, 66, 114, 132):
            with card.of(card.Card(sms, 700.0)):
                blocks = math.prod(plan.launch(Shape.cube(16384)).grid)
            assert plan.cluster[2] > 1 or sms / 2 < blocks <= sms
