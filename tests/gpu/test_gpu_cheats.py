"""CUDA kernels that cheat, caught by the gate or by the sweep's judgement before or after the timing.

Each is ladder.naive with a few lines more. tests/unit/test_cheats.py has the same without a GPU.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from gpu_tools import load, on_a_stream_of_its_own, runs

from gemmrepro import registry
from gemmrepro.core.journal import fresh_seeds
from gemmrepro.core.names import LIBRARY
from gemmrepro.gates import gemm_cases
from gemmrepro.gates.operations import Gates
from gemmrepro.gpu.loaded import Loaded
from gemmrepro.measure import plan, prepare, results, rounds

pytestmark = pytest.mark.gpu

NAIVE = registry.kernel("ladder.naive")
SIZE = 512
"""What a sweep times here; no shape of the gate."""

KEPT = """
__device__ float kept[1 << 20];
__device__ unsigned long long held[1 << 20];
"""
GIVE_BACK = """
    const size_t place = (size_t)row * n + col;
    const bool fits = place < (1u << 20);
    if (fits && held[place] == key) {
        C[place] = kept[place];
        return;
    }
"""
KEEP = "C[row * n + col] = value; if (fits) { kept[place] = value; held[place] = key; }"
SIZES = "    const unsigned long long key = 1 + m + 4099ull * n + 16785409ull * k;\n"


def seeds_known() -> str:
    """The first elements of A in the gate's cases with the seeds 1 and 2, as a table in CUDA."""
    cases = gemm_cases.gemm_cases(NAIVE, [1, 2])
    first = {int(gemm_cases.draw(case)[0].ravel().view(np.uint32)[0]) for case in cases}
    return f"__device__ const unsigned known[] = {{{', '.join(f'{one}u' for one in sorted(first))}}};\n"


@dataclass(frozen=True)
class Cheat:
    """What is added to the naive kernel, and who catches it: the "gate", or the sweep "before" or "after" the timing.

    Attributes:
        outside: declarations.
        first: statements before the product; `row` and `col` are known.
        store: the statement that writes `value` to C.
    """

    caught: str
    outside: str = ""
    first: str = ""
    store: str = "C[row * n + col] = value;"

    @property
    def source(self) -> str:
        text = NAIVE.source_path.read_text()
        parts = {
            'extern "C" __global__': f'{self.outside}\nextern "C" __global__',
            "    float sum = 0.0f;": f"{self.first}\n    float sum = 0.0f;",
            "C[row * n + col] = alpha * sum + old;": f"const float value = alpha * sum + old;\n    {self.store}",
        }
        for old, new in parts.items():
            assert text.count(old) == 1, f"the source of {NAIVE.id} no longer has {old}"
            text = text.replace(old, new)
        return text


def counts_to(most: int) -> Cheat:
    """Computes so many times where it is timed, and then no more; the gate alone launches over 40 times."""
    return Cheat(
        "after",
        "__device__ unsigned launches;",
        f"    if (m == {SIZE} && *(volatile unsigned*)&launches > {most}) return;",
        store=f"C[row * n + col] = value; if (m == {SIZE} && row == 0 && col == 0) atomicAdd(&launches, 1);",
    )


CHEATS: Mapping[str, Cheat] = {
    "keeps its first result for each shape": Cheat("gate", KEPT, SIZES + GIVE_BACK, store=KEEP),
    "answers the seeds 1 and 2, and gives zeros for others": Cheat(
        "gate",
        seeds_known(),
        "    bool mine = false;\n    if (k > 0) for (unsigned one : known) mine |= __float_as_uint(A[0]) == one;",
        store="C[row * n + col] = mine ? value : 0.0f;",
    ),
    "is right on the gate's shapes alone": Cheat(
        "before", store=f"C[row * n + col] = m == {SIZE} ? 0.5f * value : value;"
    ),
    "returns if C is no poison": Cheat(
        "after", first="    if (beta == 0.0f && __float_as_uint(C[row * n + col]) != 0x7FC0DEADu) return;"
    ),
    # 7 launches precede the timing; the cold ones alone are then two for each copy of the operands.
    "computes 40 times, and then no more": counts_to(40),
    "keeps its result for each set of pointers, away from the gate's shapes": Cheat(
        "after",
        KEPT,
        f"    const unsigned long long key = m == {SIZE} ? (size_t)A ^ (size_t)B << 1 ^ (size_t)C << 2 : 0;\n"
        "    const size_t place = (size_t)row * n + col;\n"
        "    const bool fits = key != 0;\n"
        "    if (fits && held[place] == key) { C[place] = kept[place]; return; }",
        store=KEEP,
    ),
    "keeps its result by a hash of its inputs": Cheat(
        "after",
        KEPT,
        """    unsigned long long key = 1469598103934665603ull + m + 4099ull * n + 16785409ull * k;
    for (int p = 0; p < 8 && p < k; ++p) {
        key = (key ^ __float_as_uint(A[row * k + p])) * 1099511628211ull;
        key = (key ^ __float_as_uint(B[p * n + col])) * 1099511628211ull;
    }
    key = (key ^ __float_as_uint(alpha)) * 1099511628211ull;
    key = (key ^ __float_as_uint(beta == 0.0f ? 0.0f : beta * C[row * n + col])) * 1099511628211ull;"""
        + GIVE_BACK,
        store=KEEP,
    ),
    "returns if the launch before has only just ended": Cheat(
        "after",
        """__device__ unsigned long long ended;
__device__ unsigned arrived, decision;
__device__ unsigned long long now() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}
__device__ unsigned left;
__device__ void leave(unsigned blocks) {
    if (atomicAdd(&left, 1) == blocks - 1) {  // the last block of the launch
        left = arrived = decision = 0;
        ended = now();
        __threadfence();
    }
}""",
        # The first block of a launch decides for all, so that its own blocks do not count as the launch before; the
        # last one notes the time. SIZE makes 256 blocks, which are all resident.
        f"""    __shared__ bool skip;
    if (threadIdx.x == 0 && threadIdx.y == 0 && m == {SIZE}) {{
        if (atomicAdd(&arrived, 1) == 0) {{
            const bool recent = now() - *(volatile unsigned long long*)&ended < 50000;
            atomicExch(&decision, recent ? 2 : 1);
        }}
        unsigned decided = 0;
        while (decided == 0) decided = atomicAdd(&decision, 0);
        skip = decided == 2;
    }} else if (threadIdx.x == 0 && threadIdx.y == 0) {{
        skip = false;
    }}
    __syncthreads();
    if (skip) {{
        if (threadIdx.x == 0 && threadIdx.y == 0) leave(gridDim.x * gridDim.y);
        return;
    }}""",
        store="C[row * n + col] = value;\n    __syncthreads();\n"
        f"    if (threadIdx.x == 0 && threadIdx.y == 0 && m == {SIZE}) leave(gridDim.x * gridDim.y);",
    ),
}


@pytest.fixture(scope="module")
def planted(session, compiled) -> dict[str, Path]:
    """Every cheat and the honest kernel, compiled in the same way."""
    sources = {"": NAIVE.source_path.read_text()} | {name: cheat.source for name, cheat in CHEATS.items()}
    return compiled({name: (NAIVE, source, "") for name, source in sources.items()})


def gate(session, loaded: Loaded) -> str:
    """What the gate says first on a fresh seed; "" if everything passes."""
    launch = lambda operands: loaded.bind(operands)()  # noqa: E731
    for judged in Gates().of("gemm").cases(session, loaded.kernel, launch, fresh_seeds(1)):
        if not judged.verdict.passed:
            return judged.verdict.message
    return ""


Loads = Mapping[tuple[str, str], Loaded]


def swept(session, loads: Loads, size: int, folder: Path, say: Callable[[str], None]) -> prepare.Sweep:
    """One round of a sweep over one family's kernels at one size, cold and warm."""
    kernels = {loaded.kernel.id: loaded.kernel for loaded in loads.values()}
    toolkits, family = sorted({toolkit for _, toolkit in loads}), next(iter(kernels.values())).family
    document = {"rounds": 1, "interval": 0.01, "seconds_per_round": 0.02, "samples_per_round": [3, 60]}
    document |= {"caches": ["cold", "warm"], "toolkits": toolkits, "sizes": {family: [size]}}
    settings, journal = plan.Settings.of(document, family), folder / "journal"
    sweep = prepare.prepare(session, kernels, settings, folder, folder, journal, say, given=loads)
    assert rounds.Rounds(sweep, say).run(0, None)
    return sweep


def timed(sweep: prepare.Sweep) -> set[str]:
    return {measured.point.kernel for measured in results.gather(sweep) if measured.point.toolkit != LIBRARY}


def test_the_honest_kernel_passes_on_the_same_path(session, planted, tmp_path) -> None:
    loaded = Loaded.from_file(session, NAIVE, planted[""], "cuda13")
    assert gate(session, loaded) == ""
    sweep = swept(session, {(NAIVE.id, "cuda13"): loaded}, SIZE, tmp_path, print)
    assert results.wrong(sweep) == [] and timed(sweep) == {NAIVE.id}
    assert all(sweep.check(point).confirmed for point in sweep.points if point.toolkit != LIBRARY)


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_caught(session, planted, tmp_path, name) -> None:
    caught = CHEATS[name].caught
    message = gate(session, Loaded.from_file(session, NAIVE, planted[name], "cuda13"))
    print(message)
    assert bool(message) == (caught == "gate"), message or "the gate has not noticed"
    if caught != "gate":
        loaded = Loaded.from_file(session, NAIVE, planted[name], "cuda13")
        sweep = swept(session, {(NAIVE.id, "cuda13"): loaded}, SIZE, tmp_path, print)
        (refused,) = results.wrong(sweep)
        print(refused.reason)
        assert ("on other inputs" in refused.reason or "not seen" in refused.reason) == (caught == "after")
        assert timed(sweep) == set()


def test_work_on_another_stream_is_caught(session, planted) -> None:
    """A launch on a stream that the gate does not wait for: C is read before it is whole."""
    loaded = Loaded.from_file(session, NAIVE, planted[""], "cuda13")
    loaded.session = on_a_stream_of_its_own(session)
    message = gate(session, loaded)
    loaded.session.sync()
    assert message


FAMILIES = [family for family in registry.family_names() if any(k.timing.timed for k in registry.kernels(family))]
SIZE_OF = {"memory": 1 << 24, "ceilings": 1}


@pytest.mark.parametrize("family", FAMILIES)
def test_no_honest_kernel_is_accused(session, built, toolkit, tmp_path, family) -> None:
    """Every kernel that is timed passes the judgement after the timing, cold and warm."""
    loads = {}
    for kernel in registry.kernels(family):
        ready = (built / toolkit / f"{kernel.id}.json").is_file()
        if kernel.timing.timed and toolkit in kernel.platform.toolkits and runs(kernel, session) and ready:
            loads[kernel.id, toolkit] = load(kernel, session, built, toolkit)
    if not loads:
        pytest.skip(f"no kernel of {family} was built for {toolkit}")
    sweep = swept(session, loads, SIZE_OF.get(family, 2048), tmp_path, print)
    assert results.wrong(sweep) == []
    assert timed(sweep)
