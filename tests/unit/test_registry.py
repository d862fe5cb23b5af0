"""The registry: every record agrees with its source, and refusals name what is wrong."""

import csv
import math
import re
from pathlib import Path

import pytest

from gemmrepro import registry
from gemmrepro.core import paths
from gemmrepro.errors import UserError
from gemmrepro.operations import Shape

EVERY = registry.kernels()
BY_ID = {"argnames": "kernel", "argvalues": EVERY, "ids": [kernel.id for kernel in EVERY]}
IN_CUDA = [kernel for kernel in EVERY if kernel.compiler == "nvcc"]
IN_CUDA_BY_ID = {"argnames": "kernel", "argvalues": IN_CUDA, "ids": [kernel.id for kernel in IN_CUDA]}


def test_the_ladder_has_its_eight_rungs_in_order():
    rungs = [kernel.rung for kernel in registry.kernels("ladder") if "tuned" not in kernel.rung]
    assert rungs == [*(f"L{level}" for level in range(8)), *(f"L7.{step}" for step in range(1, 7))]
    assert len({kernel.id for kernel in EVERY}) == len(EVERY)


@pytest.mark.parametrize(**IN_CUDA_BY_ID)
def test_source_defines_the_entry_and_no_host_code(kernel):
    source = kernel.source_path.read_text()
    assert re.search(rf'extern "C" __global__[^;{{]*\b{kernel.entry}\(', source)
    assert "int main" not in source
    assert "<<<" not in source


def text_of(kernel) -> str:
    """The source and the headers of its own family."""
    own = [path for path in kernel.header_paths if path.parent == kernel.source_path.parent]
    return "".join(path.read_text() for path in (kernel.source_path, *own))


@pytest.mark.parametrize(**BY_ID)
def test_constants_of_the_record_stand_in_the_source(kernel):
    """Tile sizes of the record (bm, tn ...) are the source's constexpr of that name, or its TILE."""
    # What the record defines comes first, and then what the source says where nothing is defined.
    source = " ".join(kernel.defines.values()).replace("=", " = ") + text_of(kernel)
    tile = re.search(r"\bTILE = (\d+)", source)
    for name in ("bm", "bn", "bk", "wm", "wn", "tm", "tn", "wniter"):
        if name in kernel.params:
            found = re.search(rf"\b{name.upper()} = (\d+)", source) or tile
            assert found, f"{name} is nowhere in {kernel.source}"
            assert int(found[1]) == kernel.params[name]


ONE_LAUNCH = [kernel for kernel in EVERY if kernel.op == "gemm" and not kernel.steps]


@pytest.mark.parametrize("kernel", ONE_LAUNCH, ids=lambda kernel: kernel.id)
def test_launch_covers_the_output_once(kernel):
    """Blocks times the block's tile cover C, and no block lies wholly outside it."""
    large, small = kernel.launch(Shape.cube(16384)), kernel.launch(Shape(1, 8, 8))
    if math.prod(large.grid) <= 264:  # blocks stay on the GPU and take tile after tile
        assert math.prod(small.grid) == math.prod(small.cluster or (1,)), "one tile needs one cluster of blocks"
        return
    step = kernel.multiple_of
    shape = Shape(3 * step.get("m", 43), 5 * step.get("n", 29), step.get("k", 7))
    grid = kernel.launch(shape).grid
    bm, bn = (kernel.params.get(name, kernel.params.get("tile")) for name in ("bm", "bn"))
    tiles = [-(-length // tile) for length, tile in ((shape.m, bm), (shape.n, bn))]
    if grid[1:] == (1, 1):  # blocks are numbered, and walk the tiles in an order of their own
        assert grid[0] == math.prod(tiles)
        return
    by_rows = kernel.source == "1_naive.cu"
    assert list(grid[:2]) == (tiles if by_rows else tiles[::-1])


@pytest.mark.parametrize("n", [256, 512, 1024, 2048, 4096, 8192, 16384])
def test_tiles_of_an_unfinished_turn_are_cut_alike_and_every_piece_has_steps(n):
    """What 7.6_cut.cu computes from its grid, for the grids it is given."""
    kernel = registry.kernel("ladder.cut")
    tiles, steps, turn = (n // 128) * (n // 256), n // 16, kernel.params["turn"]
    over = tiles % turn
    pieces, left = divmod(math.prod(kernel.launch(Shape.cube(n)).grid) - (tiles - over), over)
    assert left == 0
    assert 1 <= pieces
    assert pieces * over <= 2 * turn, "its memory for sums"
    if pieces > 1:
        queue = -(-over * (pieces - 1) // (turn - over))
        brief = (steps - 4 * queue) // (queue + pieces - 1)
        assert 1 <= brief <= steps - (pieces - 1) * brief
        assert steps - (pieces - 1) * brief < steps


@pytest.mark.parametrize(**IN_CUDA_BY_ID)
def test_block_matches_the_sources_launch_bounds(kernel):
    source = text_of(kernel)
    block = kernel.launch(Shape(*(kernel.multiple_of.get(axis, 1) for axis in "mnk"))).block
    threads = block[0] * block[1] * block[2]
    of_entry = re.search(rf"__launch_bounds__\(([^,)]+)[^;{{)]*\)\s+{kernel.entry}\(", source)
    bound = (of_entry or re.search(r"__launch_bounds__\(([^,)]+)", source))[1]
    names = {found[1]: found[2] for found in re.finditer(r"\b([A-Z]\w*) = ([^,;\n]+)[,;\n]", source)}
    names |= dict(pair.split("=") for value in kernel.defines.values() if "=" in value for pair in value.split(","))
    while re.search("[A-Z]", bound):
        bound = re.sub(r"\b[A-Z]\w*\b", lambda name: f"({names[name[0]]})", bound)
    assert eval(bound.replace("/", "//")) == threads


@pytest.mark.parametrize(**BY_ID)
def test_expected_opcodes_are_whole_regular_expressions(kernel):
    assert kernel.expects
    for expect in kernel.expects:
        re.compile(expect.opcode)
        assert expect.why
        assert expect.most is None or expect.most >= expect.least


@pytest.mark.parametrize(
    ("kernel_id", "shape", "said"),
    [
        ("ladder.blocktile_1d", Shape(64, 63, 8), "N = 63 is not a multiple of 64"),
        ("ladder.blocktile_2d", Shape(192, 128, 12), "M = 192 is not a multiple of 128; K = 12 is not a multiple of 8"),
        ("ladder.warptile", Shape(128, 128, 8), "K = 8 is not a multiple of 16"),
        ("ladder.naive", Shape(0, 1, 1), "every dimension must be at least 1"),
        ("ladder.naive", Shape.cube(65536), "over the 2147483647 that its indices reach"),
    ],
)
def test_a_shape_a_rung_cannot_run_is_refused_by_name(kernel_id, shape, said):
    kernel = registry.kernel(kernel_id)
    assert not kernel.takes(shape)
    with pytest.raises(UserError, match=re.escape(said)) as refused:
        kernel.check(shape)
    assert kernel_id in str(refused.value)


def test_rungs_with_guards_take_tails_and_the_rest_take_their_multiples():
    for kernel in registry.kernels("ladder"):
        if kernel.op == "gemm":
            assert kernel.takes(Shape.cube(4096))
            assert kernel.takes(Shape(77, 1, 129)) == (kernel.rung.split()[0] in ("L1", "L2", "L3"))


def test_an_unknown_kernel_names_near_misses():
    with pytest.raises(UserError, match=r"no kernel 'ladder\.warptiel'.*ladder\.warptile"):
        registry.kernel("ladder.warptiel")


def test_an_unknown_family_names_the_known_ones():
    with pytest.raises(UserError, match=r"no kernel family 'steps'; known families: .*ladder"):
        registry.family("steps")


def test_published_systems_are_rows_of_the_articles_table():
    with (Path(paths.KERNELS_DIR) / "published.csv").open(newline="") as file:
        systems = {row["system"] for row in csv.DictReader(file)}
    assert {kernel.published_system for kernel in EVERY if kernel.published_system} <= systems


def test_only_what_the_host_steers_cannot_be_captured():
    """A host that reads what a launch wrote ends a capture."""
    assert {kernel.id for kernel in EVERY if not kernel.capturable} == {
        "ozaki.naive_fp16",
        "ozaki.naive_bf16",
        "ozaki.naive_fp8_e4m3",
    }
