"""Ceilings: microbenchmarks of this GPU's peak rates, for the roofline, and probes of its memory hierarchy."""

from __future__ import annotations

from gemmrepro.operations import STREAM_CHUNK, Shape
from gemmrepro.registry import (
    Accepts,
    Call,
    Code,
    Compute,
    Expect,
    Family,
    Kernel,
    Launch,
    Platform,
    Promises,
    Story,
    Timing,
    card,
)

FAMILY = Family(
    name="ceilings",
    title="Ceilings of this GPU",
    article=None,
    summary="The highest multiply-add and copy rates that this GPU sustains for code that does nothing else.",
)

BLOCKS = 1 << 18
"""Blocks of the FFMA ceiling: over a hundred waves on the largest GPU, so the last wave weighs under one per cent."""


def _launch_ffma(shape: Shape) -> Launch:
    """`shape.n` scales the work; 1 is 275 GFLOP at the registered iterations, some 4 ms on an H200."""
    return Launch(grid=(BLOCKS * shape.n, 1, 1), block=(128, 1, 1))


def _launch_ffma_rrr(shape: Shape) -> Launch:
    """An eighth of the blocks and four times the loop of `_launch_ffma`: its blocks take longer to set up."""
    return Launch(grid=(BLOCKS // 8 * shape.n, 1, 1), block=(128, 1, 1))


def _launch_dram_copy(shape: Shape) -> Launch:
    """`shape.n` is the number of float4 to copy; a block moves 1024 of them per iteration."""
    return Launch(grid=(min(-(-shape.n // 1024), 1 << 20), 1, 1), block=(256, 1, 1))


def _launch_wgmma(shape: Shape) -> Launch:
    """One block per SM; `shape.n` is the number of such waves."""
    return Launch(grid=(card.sms() * shape.n, 1, 1), block=(256, 1, 1), shared_bytes=4 * (128 + 256) * 64 * 2)


MMA_BLOCKS = 4224
"""Blocks of the mma.sync ceiling, one per SM: 32 waves of 132 (H100, H200), 33 of 128 (RTX 4090)."""


def _launch_mma(shape: Shape) -> Launch:
    """`shape.n` scales the work; 1 is 18 TFLOP at the registered iterations, some 30 ms on an H200."""
    return Launch(grid=(MMA_BLOCKS * shape.n, 1, 1), block=(256, 1, 1))


def _one_warp(shape: Shape) -> Launch:
    return Launch(grid=(1, 1, 1), block=(32, 1, 1))


def _launch_stream_global(shape: Shape) -> Launch:
    return Launch(grid=(max(1, shape.n // STREAM_CHUNK), shape.k, 1), block=(256, 1, 1))


def _launch_stream_shared(shape: Shape) -> Launch:
    return Launch(grid=(max(1, shape.n // STREAM_CHUNK), 1, 1), block=(1024, 1, 1))


_NO_MEMORY = Expect(r"LD[GSL](\..*)?", "nothing is loaded", least=0, most=0)
_UNTIMED = Timing(baseline=None, timed=False)

PROBES = (
    Kernel(
        id="ceilings.chain",
        rung="registers",
        title="Dependent multiply-adds",
        source="chain.cu",
        compute=Compute(op="recurrence", dtype_in="int32", dtype_acc="int32", dtype_out="int32", layout="registers"),
        code=Code("chain", params={"unroll": 256}, headers=("common/clocks.cuh",)),
        launch=_one_warp,
        accepts=Accepts(multiple_of={"k": 256}, max_elements=1 << 62),
        promises=Promises(
            expects=(Expect(r"IMAD", "256 steps are unrolled, one instruction each", least=256, most=260), _NO_MEMORY)
        ),
        timing=_UNTIMED,
        story=Story(idea="Each instruction takes the result of the one before: cycles per step are the latency."),
    ),
    Kernel(
        id="ceilings.walk_shared",
        rung="shared memory, latency",
        title="Links in shared memory",
        source="walk_shared.cu",
        compute=Compute(op="walk", dtype_in="int32", dtype_acc="int32", dtype_out="int32", layout="vector"),
        code=Code("walk_shared", params={"unroll": 32}, headers=("common/clocks.cuh",)),
        launch=_one_warp,
        accepts=Accepts(multiple_of={"n": 2, "k": 32}, at_most={"n": 8192}),
        promises=Promises(
            expects=(
                Expect(r"LDS", "a hop is one load of shared memory, 32 unrolled, and one before the clock", 33, 33),
                Expect(r"LDG(\..*)?", "links are copied from global memory", least=1),
            )
        ),
        timing=_UNTIMED,
        story=Story(idea="One thread follows links: no load can start before the one before has returned."),
    ),
    Kernel(
        id="ceilings.walk_global",
        rung="global memory, latency",
        title="Links in global memory",
        source="walk_global.cu",
        compute=Compute(op="walk", dtype_in="int32", dtype_acc="int32", dtype_out="int32", layout="vector"),
        code=Code("walk_global", params={"unroll": 32}, headers=("common/clocks.cuh",)),
        launch=_one_warp,
        accepts=Accepts(multiple_of={"n": 2, "k": 32}),
        promises=Promises(
            expects=(
                Expect(
                    r"LDG\.E\.64\.STRONG\.GPU", "a hop is one load past L1; 32 unrolled, one before the clock", 33, 33
                ),
            )
        ),
        timing=_UNTIMED,
        story=Story(idea="The same in global memory past L1; the array's size decides between L2 and DRAM."),
    ),
    Kernel(
        id="ceilings.stream_shared",
        rung="shared memory, bandwidth",
        title="Reading shared memory",
        source="stream_shared.cu",
        compute=Compute(op="stream", dtype_in="int32", dtype_acc="int32", dtype_out="int32", layout="vector"),
        code=Code("stream_shared", params={"chunk": STREAM_CHUNK}),
        launch=_launch_stream_shared,
        accepts=Accepts(multiple_of={"n": STREAM_CHUNK}, max_elements=1 << 62),
        promises=Promises(
            expects=(Expect(r"LDS\.128", "shared memory is read 128 bits a thread, without bank conflicts", least=8),)
        ),
        timing=_UNTIMED,
        story=Story(idea="Every block reads its chunk again and again and adds it up."),
    ),
    Kernel(
        id="ceilings.stream_global",
        rung="global memory, bandwidth",
        title="Reading global memory",
        source="stream_global.cu",
        compute=Compute(op="stream", dtype_in="int32", dtype_acc="int32", dtype_out="int32", layout="vector"),
        code=Code("stream_global", params={"chunk": STREAM_CHUNK}),
        launch=_launch_stream_global,
        accepts=Accepts(multiple_of={"n": STREAM_CHUNK}, max_elements=1 << 62),
        promises=Promises(
            expects=(Expect(r"LDG\.E\.128\.STRONG\.GPU", "eight 128-bit loads in flight a thread, past L1", 8, 8),)
        ),
        timing=_UNTIMED,
        story=Story(idea="An array read several times over: from L2 if it fits, from DRAM if it does not."),
    ),
)
"""Kernels of the ladder's experiments `latency` and `bandwidth`."""

KERNELS = (
    Kernel(
        id="ceilings.ffma",
        rung="FFMA",
        title="fp32 multiply-add",
        source="ffma.cu",
        compute=Compute(op="ceiling_flops", layout="registers"),
        code=Code("ffma_loop", params={"iterations": 8, "ffma_per_iteration": 512, "pairs": 8, "turns": 32}),
        launch=_launch_ffma,
        call=Call(scalars={"a": 0.75, "b": -0.75}),
        promises=Promises(
            expects=(
                Expect(r"FFMA(\..*)?", "the loop is 512 FFMA", least=512),
                Expect(r"LD[GSL](\..*)?", "nothing is loaded", least=0, most=0),
                Expect(r"STG(\..*)?", "results stay alive through a store that is never taken", least=1, most=1),
            )
        ),
        timing=Timing(baseline=None),
        story=Story(idea="A register-only loop of independent FFMA chains."),
    ),
    Kernel(
        id="ceilings.ffma_rrr",
        rung="FFMA of registers",
        title="fp32 multiply-add, three register operands",
        source="ffma_rrr.cu",
        compute=Compute(op="ceiling_flops", layout="registers"),
        code=Code("ffma_rrr", params={"iterations": 32, "ffma_per_iteration": 1024, "rows": 8, "columns": 16}),
        launch=_launch_ffma_rrr,
        call=Call(scalars={"a": 0.75, "b": -0.75}),
        promises=Promises(
            expects=(
                Expect(r"FFMA(\..*)?", "the loop is 1024 FFMA", least=1024),
                Expect(r"LD[GSL](\..*)?", "nothing is loaded", least=0, most=0),
                Expect(r"STG(\..*)?", "results stay alive through a store that is never taken", least=1, most=1),
            )
        ),
        timing=Timing(baseline=None),
        story=Story(
            idea="One outer product repeated: what a GEMM's inner loop reaches if nothing else takes issue slots."
        ),
    ),
    Kernel(
        id="ceilings.wgmma",
        rung="wgmma",
        title="bf16 wgmma from shared memory",
        source="wgmma.cu",
        compute=Compute(op="ceiling_flops", dtype_in="bf16", layout="registers"),
        code=Code(
            "wgmma_loop",
            params={"iterations": 2048, "flops_per_block_iteration": 2 * 16 * 2 * 64 * 256 * 16},
            headers=("common/element.cuh", "common/mbarrier.cuh", "common/wgmma.cuh"),
        ),
        launch=_launch_wgmma,
        call=Call(scalars={"a": 1.0, "b": 1.0}),
        platform=Platform(min_capability=(9, 0), targets=("90a",)),
        promises=Promises(
            expects=(
                Expect(r"HGMMA\.64x256x16\.F32\.BF16", "the loop is 16 wgmma of the widest kind", least=16, most=16),
                Expect(r"WARPGROUP\.DEPBAR.*", "the loop waits once per iteration, not after every wgmma", most=2),
                Expect(r"LD[GSL](\..*)?", "nothing is loaded", least=0, most=0),
                Expect(r"STL(\..*)?", "nothing spills", least=0, most=0),
            )
        ),
        timing=Timing(baseline=None),
        story=Story(idea="A loop of wgmma on tiles already in shared memory, with the data of a realistic matrix."),
    ),
    Kernel(
        id="ceilings.mma_f16",
        rung="mma.sync",
        title="fp16 mma.sync from registers",
        source="mma_f16.cu",
        compute=Compute(op="ceiling_flops", dtype_in="fp16", layout="registers"),
        code=Code(
            "mma_loop",
            params={"iterations": 4096, "flops_per_block_iteration": 8 * 32 * 2 * 16 * 8 * 16},
            headers=("common/element.cuh", "common/mma.cuh"),
        ),
        launch=_launch_mma,
        call=Call(scalars={"a": 1.0, "b": -1.0}),
        promises=Promises(
            expects=(
                Expect(r"HMMA\.16816\.F32", "the loop is 64 mma.sync, and 32 more for an odd count", least=96, most=96),
                Expect(r"LD[GS](\..*)?|LDSM.*", "nothing is loaded", least=0, most=0),
                Expect(r"(STL|LDL)(\..*)?", "nothing spills", least=0, most=0),
                Expect(r"STG(\..*)?", "one thread writes one sum", least=1, most=1),
            )
        ),
        timing=Timing(baseline=None),
        story=Story(
            idea="A loop of mma.sync on fragments that stay in registers, with the data of a realistic matrix."
        ),
    ),
    Kernel(
        id="ceilings.dram_copy",
        rung="copy",
        title="Device-to-device copy",
        source="dram_copy.cu",
        compute=Compute(op="ceiling_bytes", layout="vector"),
        code=Code("dram_copy", params={"bytes_per_element": 16, "unroll": 4}),
        launch=_launch_dram_copy,
        accepts=Accepts(max_elements=1 << 40),
        promises=Promises(
            expects=(
                Expect(r"LDG\.E(\..*)?\.128(\..*)?", "four independent 128-bit loads", least=4),
                Expect(r"STG\.E(\..*)?\.128(\..*)?", "four 128-bit stores", least=4),
            )
        ),
        timing=Timing(baseline="cuda.memcpy"),
        story=Story(idea="A 128-bit copy with four loads in flight per thread."),
    ),
    *PROBES,
)
