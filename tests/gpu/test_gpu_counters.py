"""Hardware counters on a GPU agree with arithmetic, with events, and with themselves."""

import pytest
from gpu_tools import load

from gemmrepro import registry
from gemmrepro.core.names import METRICS
from gemmrepro.gpu import ranges
from gemmrepro.gpu.ranges import CuptiError, RangeProfiler
from gemmrepro.measure import results
from gemmrepro.operations import Shape
from gemmrepro.recordings.sweeps import UNITS, check_counters
from gemmrepro.timing import Timer

pytestmark = pytest.mark.gpu

SHAPE = Shape.cube(1024)
FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
LOADS = "smsp__sass_inst_executed_op_global_ld.sum"
TIME, CYCLES, READ = "gpu__time_duration.sum", "sm__cycles_elapsed.max", "dram__bytes_read.sum"
WAVES, BY_REGISTERS = "launch__waves_per_multiprocessor", "launch__occupancy_limit_registers"


@pytest.fixture(scope="module", autouse=True)
def permitted(session) -> None:
    """Skip where the counters cannot be read, with CUPTI's reason."""
    try:
        with RangeProfiler(ranges.load(), [TIME]) as opened:
            timer = Timer(session)
            opened.read(session.sync, lambda: (timer.flush(), session.sync()))
    except CuptiError as error:
        pytest.skip(str(error))


def read(session, built, toolkit, name, shape=SHAPE):
    """Values and rows of a kernel's run by metric."""
    loaded = load(registry.kernel(name), session, built, toolkit)
    rows, reason = results.collect(session, [(loaded, shape)])
    assert reason == ""
    return {row["metric"]: row["value"] for row in rows}, rows


def test_the_naive_kernel_counts_what_its_source_says(session, built, toolkit) -> None:
    found, rows = read(session, built, toolkit, "ladder.naive")
    m, n, k = SHAPE.m, SHAPE.n, SHAPE.k
    assert found[FFMA] == m * n * k + m * n, "a multiply-add for each k, and one for beta C"
    assert found[LOADS] == (2 * m * n * k) // 32, "A and B, by warp"
    assert found[READ] >= 0.9 * 4 * (m * k + k * n), "with cold caches A and B come from DRAM"
    assert UNITS.keys() <= found.keys() <= METRICS.keys()
    texts = [{**{name: str(value) for name, value in row.items()}, "unit": row["unit"] or ""} for row in rows]
    check_counters(texts, [], built / "counters.csv")


def test_counts_are_the_same_again_and_blocks_fit_as_the_driver_says(session, built, toolkit) -> None:
    first, second = (read(session, built, toolkit, "ladder.warptile")[0] for _ in range(2))
    for metric in (FFMA, LOADS, "smsp__inst_executed.sum", WAVES):
        assert first[metric] == second[metric]
    loaded = load(registry.kernel("ladder.warptile"), session, built, toolkit)
    held = loaded.occupancy(SHAPE)
    assert held.resident <= min(held.by_registers, held.by_shared_memory)
    assert first[BY_REGISTERS] == held.by_registers and first[WAVES] == held.waves > 0


@pytest.mark.parametrize("name", ["crt.library", "crt.fused"])
def test_all_launches_of_a_run_count_a_librarys_among_them(name, session, built, toolkit) -> None:
    found, _ = read(session, built, toolkit, name, Shape.cube(512))
    alone, _ = read(session, built, toolkit, "ladder.naive", Shape.cube(64))
    assert found[TIME] > alone[TIME] and found["smsp__inst_executed.sum"] > alone["smsp__inst_executed.sum"]
    assert not [metric for metric in found if metric.startswith(results.LAUNCH)], "of one launch alone"
