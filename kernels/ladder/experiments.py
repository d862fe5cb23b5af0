"""What the article says before its first GEMM: vector addition, the memory hierarchy, and the limits of a GPU.

`vector_add` times level 0 in plain and in managed memory, with its pages on the GPU and with its pages written by the
CPU before, and the same addition on the CPU. `latency` and `bandwidth` measure the article's table of the memory
hierarchy with probes of the family `ceilings`. `limits` lists what the driver reports.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gemmrepro.experiments import Column, Experiment, Lines, with_interval

MIB = 1 << 20
ADD, CPU = "ladder.vector_add", "numpy.add"
CHAIN, WALK_SHARED, WALK_GLOBAL = "ceilings.chain", "ceilings.walk_shared", "ceilings.walk_global"
STREAM_SHARED, STREAM_GLOBAL = "ceilings.stream_shared", "ceilings.stream_global"

# Vector addition ------------------------------------------------------------------------------------------------------

Timed = Callable[[], tuple[float, float]]
"""Runs something once; returns microseconds of the host's clock until it was issued, and until it was done."""

SAMPLES = 25
RESIDENT, WRITTEN, PREFETCHED, COPIED = "resident", "written by the CPU", "written, prefetched", "written, copied"
STATES = {"device": (RESIDENT, COPIED), "managed": (RESIDENT, WRITTEN, PREFETCHED), "host": (RESIDENT,)}
"""Where x and y are allocated, and what precedes an addition: nothing, or the CPU's writing of both."""


def _states(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"memory": memory, "state": state} for memory in parameters["memories"] for state in STATES[memory]]


class _Vectors:
    """x[n] and y[n], fp32, as the GPU and as the CPU see them.

    Managed memory is never more than these two vectors, 8 MiB.
    """

    def __init__(self, memory: str, n: int) -> None:
        import ctypes

        import cupy
        import numpy as np

        self._host = [np.ones(n, np.float32), np.full(n, 2.0, np.float32)]
        if memory == "managed":
            places = [cupy.cuda.malloc_managed(4 * n) for _ in range(2)]
            self.device = [cupy.ndarray((n,), cupy.float32, memptr=place) for place in places]
            self.seen = [np.ctypeslib.as_array((ctypes.c_float * n).from_address(place.ptr)) for place in places]
        else:
            self.device = [cupy.empty(n, cupy.float32) for _ in range(2)] if memory == "device" else []
            self.seen = self._host
        self.write()
        for array, values in zip(self.device, self._host, strict=False):
            array.set(values)

    def write(self) -> None:
        """The CPU writes x = 1 and y = 2, as the article's program does."""
        for seen, value in zip(self.seen, (1.0, 2.0), strict=True):
            seen[...] = value

    def add_on_cpu(self) -> None:
        import numpy as np

        np.add(*self.seen, out=self.seen[1])

    def copy(self, stream: Any) -> None:
        """From the CPU's memory to the GPU's, which waits."""
        for array, values in zip(self.device, self._host, strict=True):
            array.set(values, stream=stream)

    def prefetch(self, stream: Any) -> None:
        """Move both vectors' pages to the GPU, asynchronously."""
        from cuda.bindings import driver

        place = driver.CUmemLocation()
        place.type, place.id = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 0
        for array in self.device:
            (status,) = driver.cuMemPrefetchAsync(array.data.ptr, array.nbytes, place, 0, stream.ptr)
            if status != driver.CUresult.CUDA_SUCCESS:
                raise RuntimeError(f"cuMemPrefetchAsync: {status.name}")


def _without_managed_memory() -> str:
    """Why pages cannot migrate between the CPU and this GPU on demand; empty if they can."""
    import cupy

    attributes = cupy.cuda.Device().attributes
    for name in ("ManagedMemory", "ConcurrentManagedAccess"):
        if not attributes.get(name):
            return f"the driver reports {name} = {attributes.get(name)}"
    return ""


def _timed(session: Any, vectors: _Vectors, state: str, launch: Callable[[], None]) -> Timed:
    def once() -> tuple[float, float]:
        if state != RESIDENT:
            vectors.write()
        session.sync()
        start = time.perf_counter()
        if state == PREFETCHED:
            vectors.prefetch(session.stream)
        if state == COPIED:
            vectors.copy(session.stream)
        launch()
        issued = time.perf_counter()
        session.sync()
        return (issued - start) * 1e6, (time.perf_counter() - start) * 1e6

    return once


def _measure_add(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    import cupy

    from gemmrepro import stats
    from gemmrepro.operands import Operands
    from gemmrepro.operations import Problem, Shape

    n, memory, state = context.parameters["n"], point["memory"], point["state"]
    session, problem = context.session, Problem("vector_add_in_place", "fp32", "fp32", "vector")
    for subject in context.subjects:
        if (subject.kernel == CPU) != (memory == "host"):
            continue
        if memory == "managed" and (reason := _without_managed_memory()):
            context.leave_out(subject, reason)
            continue
        vectors = _Vectors(memory, n)
        if memory == "host":
            launch: Callable[[], None] = vectors.add_on_cpu
        else:
            x, y = vectors.device
            launch = context.bind(subject, Operands(problem, Shape(1, n, 1), (x,), y))
        once = _timed(session, vectors, state, launch)
        for _ in range(3):
            once()
        samples = [once() for _ in range(context.settings["samples"])]
        spent = stats.median_interval([done for _, done in samples])
        issued = stats.median_interval([until for until, _ in samples])
        vectors.write()
        if state == COPIED or (memory == "device" and state == RESIDENT):
            vectors.copy(session.stream)
        launch()
        session.sync()
        result = cupy.asnumpy(vectors.device[1]) if memory == "device" else vectors.seen[1]
        yield context.row(
            subject,
            memory=memory,
            state=state,
            n=n,
            time_us=spent.value,
            time_low_us=spent.low,
            time_high_us=spent.high,
            issued_us=issued.value,
            issued_share=issued.value / spent.value,
            right=float((result == 3.0).mean()),
        )
        del vectors, launch


VECTOR_ADD = Experiment(
    name="vector_add",
    title="Level 0 in plain and in managed memory",
    question="What does an addition of 2^20 numbers take, and what do pages that the CPU has written add to it?",
    kernels=(ADD,),
    libraries=(CPU,),
    parameters={"n": MIB, "memories": list(STATES)},
    settings={"samples": SAMPLES},
    columns=(
        Column("memory", "plain memory of the GPU, managed memory, or the CPU's", kind="text"),
        Column("state", "what precedes each addition", kind="text"),
        Column("n", "elements", kind="integer"),
        *with_interval(
            Column(
                "time_us",
                "time by the host's clock until the sum is there",
                "µs",
                low="time_low_us",
                high="time_high_us",
            )
        ),
        Column("issued_us", "time until the launch has returned", "µs"),
        Column("issued_share", "time until the launch has returned, as a share of the median time"),
        Column("right", "share of sums that are 3 = 1 + 2, as the CPU reads them"),
    ),
    points=_states,
    measure=_measure_add,
    follows={"issued_share": lambda row: row["issued_us"] / row["time_us"]},
)

# Latency --------------------------------------------------------------------------------------------------------------

REPEATS = 5
LINK_BYTES = 128
BY_SIZE = "by size"
WALKED_WHOLE = 64 * MIB
"""Up to this size a walk through all links precedes the timed one; beyond, L2 is flushed."""
SIZES = [2**16, 2**20, *(2**power for power in range(22, 31))]
L2_BYTES, DRAM_BYTES = 8 * MIB, 256 * MIB
MOST_OF_L2 = 0.65
"""The share of L2 that an array may have which is to stay there."""


def in_l2(context: Any, size: int, largest: int = 0) -> int:
    """`size` as it is where this GPU's L2 holds it, and `largest`; else over the power of two that makes both fit."""
    fits = MOST_OF_L2 * context.session.gpu.l2_bytes
    while max(size, largest) > fits > 0:  # no L2 is told of some virtual GPUs
        size, largest = size // 2, largest // 2
    return size


def _latency_points(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    levels = [
        {"level": "registers", "bytes": 0},
        {"level": "shared memory", "bytes": 32768},
        {"level": "L2", "bytes": parameters["l2_bytes"]},
        {"level": "L2, near and far", "bytes": parameters["l2_bytes"]},
        {"level": "DRAM", "bytes": parameters["dram_bytes"]},
    ]
    return levels + [{"level": BY_SIZE, "bytes": size} for size in parameters["sizes"]]


class _Walker:
    """Launches a latency probe and reads its clocks."""

    def __init__(self, context: Any, subject: Any) -> None:
        import cupy

        self._context, self._subject = context, subject
        self._result = cupy.zeros(3, cupy.int32)

    def cells(self, k: int, n: int, links: tuple[Any, ...]) -> tuple[float, float]:
        """Cycles and nanoseconds per step of one launch of `k` steps."""
        from gemmrepro.operands import Operands
        from gemmrepro.operations import Shape

        problem = self._context.kernel(self._subject).problem
        self._context.bind(self._subject, Operands(problem, Shape(1, n, k), links, self._result))()
        self._context.session.sync()
        _, cycles, nanoseconds = self._result.get().tolist()
        return cycles / k, nanoseconds / k


def _row(
    context: Any, subject: Any, level: str, size: int, hops: int, found: list[tuple[float, float]]
) -> dict[str, Any]:
    """A row of the median over launches, with the smallest and the largest as its interval."""
    import statistics

    cycles, times = [one[0] for one in found], [one[1] for one in found]
    middle = statistics.median(cycles)
    return context.row(
        subject,
        level=level,
        bytes=size,
        hops=hops,
        cycles=middle,
        cycles_low=min(cycles),
        cycles_high=max(cycles),
        ns=statistics.median(times),
    )


TICK = 1000.0
"""The coarsest step of the GPU's timer, in nanoseconds: %globaltimer advances every 32 ns to 1 µs (PTX ISA leaves it to
the GPU)."""

APART = 1.01
"""How far the two medians, each of its own launch, may be apart (1.0004 on an H200)."""

LOWEST = 0.1
"""The lowest clock of an idle GPU as a share of its highest (210 of 1980 MHz on an H200)."""


def _impossible_clocks(row: Mapping[str, str], highest: float) -> str:
    """Why the clocks that a probe reads itself cannot be: a row's cycles and nanoseconds per load give the SM clock."""
    cells = [row[name] for name in ("cycles", "ns", "hops")]
    if not highest or "" in cells:
        return ""
    cycles, nanoseconds, hops = map(float, cells)
    if cycles <= 0 or nanoseconds <= 0 or hops <= 0:
        return "cycles, ns and hops must be positive"
    clock = cycles / nanoseconds * 1e3
    if LOWEST * highest <= clock <= APART * (1 + TICK / (nanoseconds * hops)) * highest:
        return ""
    return (
        f"{cycles:g} cycles in {nanoseconds:g} ns are a clock of {clock:.4g} MHz, and this GPU's is at most "
        f"{highest:g} MHz and hardly below {LOWEST * highest:g} MHz"
    )


def _measure_latency(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    level, size = point["level"], point["bytes"]
    if level.startswith("L2"):
        size = in_l2(context, size)
    probe = {"registers": CHAIN, "shared memory": WALK_SHARED}.get(level, WALK_GLOBAL)
    for subject in context.subjects:
        if subject.kernel != probe:
            continue
        walker = _Walker(context, subject)
        if level == "registers":
            hops = 1 << 16
            found = [walker.cells(hops, 12345, ()) for _ in range(REPEATS)]
            yield _row(context, subject, level, size, hops, found)
        elif level == "L2, near and far":
            yield from _near_and_far(context, subject, walker, size)
        else:
            spacing = 2 if level == "shared memory" else LINK_BYTES // 4
            hops, found = _along_a_ring(context, walker, size, spacing, flushed=level == "DRAM")
            yield _row(context, subject, level, size, hops, found)


def _along_a_ring(
    context: Any, walker: _Walker, size: int, spacing: int, flushed: bool
) -> tuple[int, list[tuple[float, float]]]:
    """Walks through a random ring of `size` bytes: hops, and cycles and nanoseconds a hop for each launch."""
    import cupy

    from gemmrepro.operands import draw_ring
    from gemmrepro.timing import Timer

    timer, found = Timer(context.session), []
    words = size // 4
    whole = -(-words // spacing // 32) * 32
    hops = min(8192, max(whole, 2048))
    for repeat in range(REPEATS):
        links = (draw_ring(words, spacing, size + repeat, cupy),)
        context.session.sync()
        cupy.cuda.Device().synchronize()
        if flushed or size > WALKED_WHOLE:
            timer.flush()
        else:
            walker.cells(whole, words, links)
        found.append(walker.cells(hops, words, links))
        del links
    return hops, found


def _near_and_far(context: Any, subject: Any, walker: _Walker, size: int) -> Iterator[dict[str, Any]]:
    """The latency of single lines: H100 and H200 have two L2 partitions, one nearer to an SM than the other."""
    import cupy
    import numpy as np

    from gemmrepro.operands import draw_ring, link_to

    words, hops = size // 4, 256
    links = draw_ring(words, LINK_BYTES // 4, 1, cupy)
    lines = np.random.default_rng(1).permutation(size // LINK_BYTES - 1)[:128] + 1
    of_lines = []
    for line in lines:
        place = int(line) * LINK_BYTES
        link_to(links, [0, place], [place, place], cupy)  # the line leads to itself
        cupy.cuda.Device().synchronize()
        walker.cells(hops, words, (links,))
        of_lines.append(walker.cells(hops, words, (links,)))
    of_lines.sort()
    tenth = len(of_lines) // 10
    for name, part in (("L2, nearest tenth", of_lines[:tenth]), ("L2, farthest tenth", of_lines[-tenth:])):
        yield _row(context, subject, name, size, hops, part)


def _rises(cycles: Any) -> str:
    """How long a load takes in the smallest and in the largest buffer."""
    first, last = (f"{value:.0f}" for value in cycles["load"].iloc[[0, -1]])
    return f"A dependent load takes {first} cycles in the smallest buffer and {last} in the largest"


LATENCY = Experiment(
    name="latency",
    title="Latency of the memory hierarchy",
    question="How many cycles pass until a register, shared memory, L2 and DRAM answer?",
    kernels=(CHAIN, WALK_SHARED, WALK_GLOBAL),
    parameters={"sizes": SIZES, "l2_bytes": L2_BYTES, "dram_bytes": DRAM_BYTES, "link_bytes": LINK_BYTES},
    columns=(
        Column("level", "level of the hierarchy", kind="text"),
        Column("bytes", "size of the array with the links", kind="integer"),
        Column("hops", "dependent steps between the clocks", kind="integer"),
        Column("cycles", "SM cycles per step, the median of five launches", low="cycles_low", high="cycles_high"),
        Column("cycles_low", "the fewest"),
        Column("cycles_high", "the most"),
        Column("ns", "nanoseconds per step"),
    ),
    points=_latency_points,
    measure=_measure_latency,
    impossible=_impossible_clocks,
    figures=(
        Lines(
            name="latency",
            title="Latency of global memory by size",
            x="bytes",
            x_label="bytes with a link in every line of 128",
            y="cycles",
            y_label="cycles per dependent load",
            panel="level",
            panels={BY_SIZE: "one thread, random order, past L1"},
            series={WALK_GLOBAL: "load"},
            says=_rises,
            caption=(
                "Up to 64 MiB all links are walked once before the clock starts, so that they come from L2 as far as "
                "they fit; beyond, L2 is flushed first. The rise at the right is address translation."
            ),
        ),
    ),
)

# Bandwidth ------------------------------------------------------------------------------------------------------------

SHARED_PASSES, L2_PASSES = 2048, 64


def _bandwidth_points(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"level": "shared memory", "bytes": 0, "passes": SHARED_PASSES},
        *({"level": "L2", "bytes": size, "passes": L2_PASSES} for size in parameters["l2_bytes"]),
        {"level": "DRAM", "bytes": parameters["dram_bytes"], "passes": 1},
    ]


def _measure_bandwidth(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    import cupy

    from gemmrepro import stats, timing
    from gemmrepro.operands import Operands, draw_words
    from gemmrepro.operations import STREAM_CHUNK, Shape

    session, level, passes = context.session, point["level"], point["passes"]
    cupy.get_default_memory_pool().free_all_blocks()
    # Shared memory: eight full waves of two blocks an SM.
    size = in_l2(context, point["bytes"], max(context.parameters["l2_bytes"])) if level == "L2" else point["bytes"]
    n = 16 * session.gpu.sm_count * STREAM_CHUNK if level == "shared memory" else size // 4
    words = draw_words(n, 1, cupy)
    sums = cupy.zeros(n // STREAM_CHUNK * passes, cupy.int32)
    for subject in context.subjects:
        if subject.kernel != (STREAM_SHARED if level == "shared memory" else STREAM_GLOBAL):
            continue
        operands = Operands(context.kernel(subject).problem, Shape(1, n, passes), (words,), sums)
        call = context.bind(subject, operands)
        timer = timing.Timer(session)
        estimate = timer.estimate(call, timer.once(call))
        burst = timer.burst([call], None, "warm", timing.Plan(0.01, 0.1, 5, 100), (estimate, None), False)
        spent = stats.median_interval(burst.times)
        moved = 4e-6 * n * passes
        yield context.row(
            subject,
            level=level,
            bytes=4 * n,
            passes=passes,
            tbps=moved / spent.value,
            tbps_low=moved / spent.high,
            tbps_high=moved / spent.low,
        )


BANDWIDTH = Experiment(
    name="bandwidth",
    title="Bandwidth of the memory hierarchy",
    question="How many bytes a second do all SMs together read from shared memory, L2 and DRAM?",
    kernels=(STREAM_SHARED, STREAM_GLOBAL),
    parameters={"l2_bytes": [4 * MIB, 8 * MIB, 16 * MIB, 32 * MIB], "dram_bytes": 1 << 30},
    columns=(
        Column("level", "level of the hierarchy", kind="text"),
        Column("bytes", "size of what is read", kind="integer"),
        Column("passes", "how often it is read in a launch", kind="integer"),
        *with_interval(Column("tbps", "bytes read per second", "TB/s", low="tbps_low", high="tbps_high")),
    ),
    points=_bandwidth_points,
    measure=_measure_bandwidth,
)

# Limits ---------------------------------------------------------------------------------------------------------------

REPORTED = {
    "threads of a block": ("MaxThreadsPerBlock", 1, "threads"),
    "threads of a warp": ("WarpSize", 1, "threads"),
    "threads of an SM": ("MaxThreadsPerMultiProcessor", 1, "threads"),
    "SMs": ("MultiProcessorCount", 1, "SMs"),
    "shared memory of an SM": ("MaxSharedMemoryPerMultiprocessor", 1024, "KB"),
    "shared memory of a block": ("MaxSharedMemoryPerBlockOptin", 1024, "KB"),
    "registers of an SM": ("MaxRegistersPerMultiprocessor", 256, "KB"),
    "L2": ("L2CacheSize", 1 << 20, "MB"),
}
"""A limit's name, the driver's attribute, how many of its units make one of ours, and our unit."""


def _limits(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"part": "all"}]


def _measure_limits(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    import cupy

    attributes = cupy.cuda.Device().attributes
    values = {name: (attributes[key] / per, unit) for name, (key, per, unit) in REPORTED.items()}
    values["global memory"] = (context.session.gpu.memory_bytes / 1e9, "GB")
    for subject in context.subjects:
        for name, (value, unit) in values.items():
            yield context.row(subject, limit=name, value=value, unit=unit)


LIMITS = Experiment(
    name="limits",
    title="Limits of this GPU",
    question="How many threads and how much memory does the driver report?",
    kernels=(ADD,),
    columns=(
        Column("limit", "of what", kind="text"),
        Column("value", "as the driver reports it"),
        Column("unit", "in what", kind="text"),
    ),
    points=_limits,
    measure=_measure_limits,
)

EXPERIMENTS = (VECTOR_ADD, LATENCY, BANDWIDTH, LIMITS)
