"""The registry: what it finds, what it refuses, and what a record must state. Its contents `check` judges."""

import itertools
import math
import re
from collections.abc import Iterator

import pytest
from records import record

from gemmrepro import registry
from gemmrepro.errors import UserError
from gemmrepro.operations import Shape, counts
from gemmrepro.registry import Kernel, TensorMap, card, keys
from gemmrepro.registry.requirements import requirement


@pytest.mark.parametrize(
    ("kernel_id", "shape", "reason"),
    [
        ("ladder.blocktile_1d", Shape(64, 63, 8), "N = 63 is not a multiple of 64"),
        ("ladder.blocktile_2d", Shape(192, 128, 12), "M = 192 is not a multiple of 128; K = 12 is not a multiple of 8"),
        ("ladder.warptile", Shape(128, 128, 8), "K = 8 is not a multiple of 16"),
        ("ladder.naive", Shape(0, 1, 1), "every dimension must be at least 1"),
        ("ladder.naive", Shape.cube(65536), "exceeds the 2147483647 that its indices can address"),
        ("memory.histogram_lanes", Shape(1, 4096, 257), "K = 257 exceeds its maximum of 256"),
    ],
)
def test_a_shape_a_rung_cannot_run_is_refused_by_name(kernel_id: str, shape: Shape, reason: str) -> None:
    kernel = registry.kernel(kernel_id)
    assert not kernel.takes(shape)
    with pytest.raises(UserError, match=re.escape(reason)) as refused:
        kernel.check(shape)
    assert kernel_id in str(refused.value)
    assert registry.kernel("ladder.smem").takes(Shape(77, 1, 129))


MEMORY = 141 * 10**9
TILES_ALONG_Y = {"ada", "ceilings", "cute", "hopper", "ladder"}
"""Families some of whose grids grow along y, or hold a whole array of blocks: they refuse what no GPU launches."""


def longest_shapes(kernel: Kernel) -> Iterator[Shape]:
    """One axis as long a power of two as the record and a GPU's memory allow, the others short."""
    for axis, *others in itertools.product(range(3), (1, 128), (1, 128)):
        for shape in (Shape(*others[:axis], 2**power, *others[axis:]) for power in range(31, -1, -1)):
            inputs, output = counts(kernel.problem, shape)
            if kernel.takes(shape) and 8 * sum((*inputs, output)) + kernel.workspace_bytes(shape) <= MEMORY:
                yield shape
                break


@pytest.mark.parametrize("family", registry.families.family_names())
def test_no_grid_is_too_large_for_a_gpu_or_its_shape_is_refused_before_anything_is_launched(family: str) -> None:
    for kernel, shape in [(each, shape) for each in registry.kernels(family) for shape in longest_shapes(each)]:
        part = kernel.at(shape)
        grids = [step.launch(shape).grid for step in part.steps_at(shape) or (part,) if hasattr(step, "launch")]
        if all(x < 2**31 and max(y, z) < 2**16 for x, y, z in grids):
            kernel.check(shape)
        else:
            assert family in TILES_ALONG_Y, (kernel.id, shape, grids)
            with pytest.raises(UserError, match=r"cannot run .*: a grid of .* blocks exceeds .*Choose another size"):
                kernel.check(shape)


def test_what_there_is_not_is_named_with_what_there_is() -> None:
    with pytest.raises(UserError, match=r"no kernel 'ladder\.warptiel'.*ladder\.warptile"):
        registry.kernel("ladder.warptiel")
    with pytest.raises(UserError, match=r"no kernel family 'steps'; known families: .*ladder"):
        registry.family("steps")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dtype_in": "fp17"}, "dtype_in 'fp17' is none of"),
        ({"compiler": "rustc"}, "compiler 'rustc' is none of"),
        ({"compiler": "cutile", "flags": ("-G",)}, "the compiler cutile takes no flags"),
        ({"layout": "col,col,row"}, "layout 'col,col,row' is none of"),
        ({"program": print}, "a program needs steps"),
        ({"tensor_maps": {"a": TensorMap((64, 64))}}, r"use the tensor maps \[\]; Call\.tensor_maps has \['a'\]"),
        ({"multiple_of": {"rows": 8}}, "the axis rows"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_record_that_contradicts_itself_is_refused_by_name(fields: dict, message: str) -> None:
    with pytest.raises(UserError, match=rf"^ladder\.new: .*{message}"):
        record("ladder.new", **fields)


@pytest.mark.parametrize("sms", [1, 2, 7, 14, 19, 66, 199])
def test_every_kernel_is_planned_on_any_number_of_sms(sms: int) -> None:
    """Slices of a card have few. Kernels that launch the same on two unlike cards are left out: they do on all."""
    for kernel in PER_CARD:
        with card.of(card.Card(sms, 350.0)):
            assert re.fullmatch("[0-9a-f]{16}", keys.run_key(kernel, "")) and not requirement(kernel, (9, 0))
            for shape in kernel.promises.gate_shapes:
                kernel.check(shape)


def _run_key(kernel: Kernel, at_hand: card.Card) -> str:
    with card.of(at_hand):
        return keys.run_key(kernel, "")


PER_CARD = [one for one in registry.kernels() if len({_run_key(one, at) for at in (card.REFERENCE, card.ANOTHER)}) > 1]
SM_COUNTS = range(14, 171)
IN_TWO = {"cutile.tail_fp16", "cutile.tail_bf16", "cutile.pairs_bf16", "cutile.pairs_int8"}
"""Products whose last wave is a launch of its own."""


@pytest.mark.parametrize("kernel_id", sorted(IN_TWO))
def test_a_last_wave_of_its_own_is_one_wave_on_any_card(kernel_id: str) -> None:
    kernel, shape = registry.kernel(kernel_id), Shape.cube(8192)
    for sms in SM_COUNTS:
        with card.of(card.Card(sms, 700.0)):
            whole, *last = kernel.steps_at(shape)
            (grid, *_), tiles = whole.launch(shape).grid, whole.arguments[-1]
            assert grid in (sms, 2 * sms)
            assert tiles % sms == 0 if last else tiles == 64 * 64
            assert all(math.prod(step.launch(shape).grid) <= sms for step in last)


def test_only_what_the_host_steers_cannot_be_captured() -> None:
    """A host that reads what a launch wrote ends a capture."""
    assert not registry.kernel("ozaki.naive_bf16").capturable
    assert registry.kernel("ozaki.fused_bf16_d9").capturable and registry.kernel("ladder.naive").capturable
