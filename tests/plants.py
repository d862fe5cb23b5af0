"""Bugs to plant in kernels: what the numerical gate must not let pass."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from records import changed

from gemmrepro import registry
from gemmrepro.core import paths
from gemmrepro.gates.gemm_cases import gemm_shapes
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel, TensorMap


@dataclass(frozen=True)
class Plant:
    """A bug in the source of `kernel`, in a header of it, or in what its record says.

    Attributes:
        header: which of its headers changes, instead of the source.
        pattern, replacement, count: what changes in the source (re.sub; a count of 0 means everywhere).
        record: fields of the record that change.
        seen_on: where alone it can show: "large", the gate's large shape, or "own", the kernel's own shapes.
    """

    kernel: str
    pattern: str = ""
    replacement: str = ""
    count: int = 1
    record: Mapping[str, Any] = field(default_factory=dict)
    seen_on: str = ""
    header: str = ""

    def apply(self) -> tuple[Kernel, str]:
        """The kernel's record, and its source, or its header, with the bug in them."""
        kernel = registry.kernel(self.kernel)
        assert not self.header or self.header in kernel.code.headers, f"{self.kernel} has no header {self.header}"
        source = (paths.KERNELS_DIR / self.header if self.header else kernel.source_path).read_text()
        if self.pattern:
            edited, times = re.subn(self.pattern, self.replacement, source, count=self.count)
            assert times >= 1 and edited != source, f"the source of {self.kernel} no longer has {self.pattern}"
            source = edited
        planted = changed(kernel, **self.record)
        assert self.pattern or planted != kernel, f"the record of {self.kernel} says so already: {self.record}"
        return planted, source

    def shapes(self) -> set[Shape] | None:
        """The shapes on which alone it shows; None where it may on any."""
        kernel = registry.kernel(self.kernel)
        return {"large": {gemm_shapes(kernel)[2]}, "own": set(kernel.promises.gate_shapes)}.get(self.seen_on)


BARRIERS = r"__syncthreads\(\);"
STORE = r"C\[row \* n \+ col\] = "
FULL = r"        barrier_wait\(&full, parity\);\n        parity \^= 1;\n"
RING_FULL = r"            barrier_wait\(&shared\.full\[stage\], parity\);\n"

LADDER = {
    "first barrier missing": Plant("ladder.smem", BARRIERS),
    "every barrier missing": Plant("ladder.smem", BARRIERS, count=0),
    "C stored transposed": Plant("ladder.coalesced", STORE, "C[col * m + row] = "),
    "B indexed transposed": Plant("ladder.naive", r"B\[p \* n \+ col\]", "B[col * k + p]"),
    "a tile never written": Plant(
        "ladder.blocktile_2d",
        r"(float\* C\) \{)",
        r"\1 if (blockIdx.x == gridDim.x - 1 && blockIdx.y == gridDim.y - 1) return;",
    ),
    "one NaN": Plant(
        "ladder.coalesced",
        r"alpha \* sum \+ old",
        "(row == m - 1 && col == n - 1 ? __int_as_float(0x7fffffff) : alpha * sum + old)",
    ),
    "A and B read although alpha is 0": Plant("ladder.smem", r"        k = 0;[^\n]*\n"),
    "C read although beta is 0": Plant("ladder.naive", r"beta == 0\.0f \? 0\.0f : "),
    "one row too many written": Plant("ladder.smem", r"if \(row < m && col < n\)", "if (row <= m && col < n)"),
    "the last of K left out": Plant("ladder.naive", r"p < k;", "p < k - 1;"),
    "the last step of a tile left out": Plant("ladder.runtime_swapped", r"p < bk;", "p < bk - 1;"),
    "a value of B taken for its neighbour's": Plant("ladder.swapped_loops", r"Bs\[p\]\[col\]", "Bs[p][col ^ 1]"),
    "sums added before the last piece has stored its own": Plant(
        "ladder.cut", r"arrive\(counter\) == piece\.pieces - 1", "arrive(counter) == piece.pieces - 2"
    ),
    "arrivals counted on top of what was there": Plant(
        "ladder.cut", r"== launch \? seen : launch", "== launch ? seen : seen"
    ),
    "pieces of a sum multiplied by alpha": Plant("ladder.cut", r"piece\.pieces == 1 \? alpha : 1\.0f", "alpha"),
    "y overwritten instead of added to": Plant("ladder.vector_add", r"x\[i\] \+ y\[i\]", "x[i]"),
    "a load of each chunk left out": Plant(
        "ceilings.stream_global",
        r"sum = 0;\n#pragma unroll\n    for \(int load = 0;",
        "sum = 0;\n#pragma unroll\n    for (int load = 1;",
    ),
}

# None of these can hang: a phase that nobody waits for, or a byte that is not counted, may leave a barrier waiting.
HOPPER = {
    "multiplied before the tiles have come": Plant(
        "hopper.tiles",
        rf"(?s){FULL}(.*?)(?=        __syncthreads\(\);  // all four)",
        r"\1        barrier_wait(&full, parity);\n        parity ^= 1;\n",
    ),
    "multiplied before the ring's tiles have come": Plant(
        "hopper.specialized",
        rf"(?s){RING_FULL}(.*?wgmma_wait<0>\(\);\n)",
        r"\1            barrier_wait(&shared.full[stage], parity);\n",
    ),
    "the last step along K left out": Plant("hopper.specialized", r"p0 < k;", "p0 + BK < k;", count=0),
    "a quarter of each step left out": Plant("hopper.two_consumers", r"s < BK / 16;", "s < BK / 16 - 1;"),
    "sums of the tile before kept": Plant("hopper.persistent", r"p > 0 \|\| s > 0", "true", seen_on="large"),
    "a block's second tile left out": Plant(
        "hopper.persistent", r"t \+= gridDim\.x", "t += rows * cols", count=0, seen_on="large"
    ),
    "both blocks load the same half of B": Plant(
        "hopper.multicast", r"tile\.col \* BN \+ rank \* SHARE", "tile.col * BN"
    ),
    "the last columns of a tile never stored": Plant(
        "hopper.tma_store", r"piece < BN / 64; \+\+piece", "piece < BN / 64 - 1; ++piece"
    ),
    "pieces staged without the swizzle": Plant(
        "hopper.in_flight", r"\(\(chunk \+ lane / 16\) \^ lane % 8\)", "(chunk + lane / 16)"
    ),
    "the rest of a cut tile not added": Plant(
        "hopper.stream_k", r"sums\[4 \* i\] \+ rest\.x", "sums[4 * i]", seen_on="own"
    ),
    "rounded towards zero": Plant(
        "hopper.wgmma",
        r"pack<Element>\(sums\[i\], sums\[i \+ 1\]\)",
        "__float_as_uint(sums[i]) >> 16 | (__float_as_uint(sums[i + 1]) & 0xffff0000u)",
    ),
    "B loaded without the swizzle": Plant(
        "hopper.wgmma", record={"tensor_maps": {"a": TensorMap((64, 64), 128), "b": TensorMap((64, 64), 0)}}
    ),
    "fp16 taken for bf16": Plant("hopper.wgmma_fp16", record={"defines": {}}),
    # In the sketch itself such a descriptor leads beyond the block's shared memory, which ends the context.
    "a descriptor that names no swizzle": Plant(
        "hopper.layouts", record={"arguments": ("a", "b", "c", "m", "n", "k", 0, 0, 0, 1024)}
    ),
    "plain rows under a swizzled descriptor": Plant(
        "hopper.layouts", record={"arguments": ("a", "b", "c", "m", "n", "k", 1, 1, 0, 1024)}
    ),
    "blocks of eight rows at the wrong distance": Plant(
        "hopper.sketch", r"\(1024 >> 4\)", "(512 >> 4)", header="common/wgmma_f16.cuh"
    ),
    "A not read transposed": Plant(
        "hopper.sketch", r"add, 1, 1, 1, 1;", "add, 1, 1, 0, 1;", header="common/wgmma_f16.cuh"
    ),
    "the next step of K at the wrong place": Plant(
        "hopper.sketch", r"2048 >> 4", "32 >> 4", header="common/wgmma_f16.cuh"
    ),
    "the last rows of K left out": Plant("hopper.sketch", r"p0 < k;", "p0 + BK < k;"),
}

# What writes out of bounds writes no further than the guard band behind the array.
MEMORY = {
    "the last element not copied": Plant("memory.copy_128_half", r"rest < n", "rest < n - 1"),
    "a copy's second turn left out": Plant("memory.copy_128_float", r"i \+= stride", "i += n", seen_on="own"),
    "ids outside counted behind the counts": Plant(
        "memory.histogram_global", r"\(unsigned\)bins\)", "(unsigned)bins + 1)"
    ),
    "negative ids counted in the first bin": Plant(
        "memory.histogram_shared", r"\(unsigned\)ids\[i\]", "(unsigned)max(ids[i], 0)"
    ),
    "counted without an atomic": Plant("memory.histogram_global", r"atomicAdd\(&(counts\[.*\]), 1u\);", r"\1 += 1u;"),
    "counts not cleared": Plant("memory.histogram_shared", r"counts\[bin\] = 0;", ""),
    "a block's counts not merged": Plant("memory.histogram_merged", r"i < blocks", "i < blocks - 1"),
    "partial histograms closer than the merge has threads": Plant(
        "memory.histogram_merged", r"blockIdx\.x \* PLACES", "blockIdx.x * (bins + 1)"
    ),
    "counts of the launch before kept": Plant("memory.histogram_lanes", r"counts\[bin\] = 0;", ""),
    "a lane's counts left out": Plant(
        "memory.histogram_lanes", r"(__reduce_add_sync\(~0u, )own", r"\1lane == 31 ? 0u : own"
    ),
    "a segment's place within its tile forgotten": Plant(
        "memory.histogram_ranges", r"TILE_UNITS \+ \(next >> 16\)", "TILE_UNITS"
    ),
    "what fills up a segment counted in the first bin": Plant(
        "memory.histogram_ranges", r"staged\[place\] = length", "staged[place] = 0"
    ),
    "a shared range stored by each of its blocks": Plant("memory.histogram_ranges", r"if \(many == 1\)", "if (true)"),
    "the last range stored behind the counts": Plant(
        "memory.histogram_ranges", r"bin > \(unsigned\)bins", "bin > (unsigned)bins + 1"
    ),
    "the ids of a block's first tile taken for its second": Plant(
        "memory.histogram_ranges", r"load\(tile \+ gridDim\.x\)", "load(tile)", seen_on="own"
    ),
    "a block's second range left out": Plant("memory.histogram_ranges", r"item \+= gridDim\.x", "item += all_items"),
    "every barrier of a sum missing": Plant("memory.reduce_sequential", BARRIERS, count=0),
    "the last elements not summed": Plant("memory.reduce_wide", r"threadIdx\.x < n % 4", "threadIdx.x < n % 4 - 1"),
    "a sum's second turn left out": Plant("memory.reduce_wide", r"i \+= stride", "i += n", seen_on="own"),
}

CRT = {
    "a modulus left out of the reconstruction": Plant(
        "crt.fused", r"I < COUNT\)", "I < COUNT - 1)", count=0, header="crt/reconstruction.cuh"
    ),
    "a wrong weight": Plant(
        "crt.fused", r"= others \* inverse\(", "= others * (i == 3) + others * inverse(", header="crt/moduli.cuh"
    ),
    "the nearest multiple of M not taken off": Plant(
        "crt.fused", r"rint\(high \* PER_M\)", "0.0", header="crt/reconstruction.cuh"
    ),
    "an exponent too large": Plant("crt.fused", r"- norm\.biased;\n", "- norm.biased + 1;\n", header="crt/scaling.cuh"),
    "an exponent of the accurate mode too large": Plant(
        "crt.accurate", r"- 1023 - e;", "- 1021 - e;", header="crt/coarse.cuh"
    ),
    "a row with an Inf not marked": Plant("crt.fused", r"norm\.biased == 2047", "false", header="crt/scaling.cuh"),
    "a row's last of K left out": Plant(
        "crt.fused", r"4 \* quad \+ i < k \?", "4 * quad + i < k - 1 ?", header="crt/residues.cuh"
    ),
    "a column's last of K left out": Plant(
        "crt.fused", r"depth \+ h < k &&", "depth + h < k - 1 &&", header="crt/columns.cuh"
    ),
    "sums not reduced": Plant("crt.fused", r"residue\(d\[4 \* i\], p\)", "d[4 * i]"),
    "scaled back by a power too much": Plant(
        "crt.fused", r"power\(1023 - t\)", "power(1024 - t)", header="crt/eight.cuh"
    ),
    "the residues of the modulus before": Plant("crt.fused", r"tile\.modulus \* m", "max(tile.modulus - 1, 0) * m"),
    "both blocks of a cluster load the same half of B": Plant("crt.fused", r" \+ rank \* SHARE, \(1", ", (1"),
    "sums of the modulus before kept": Plant("crt.fused", r"p > 0 \|\| s > 0", "true"),
    "sums of the modulus before kept, by turns": Plant(
        "crt.ping_pong", r"p > 0 \|\| s > 0", "true", header="crt/in_turn.cuh"
    ),
    "a product of blocks left out": Plant(
        "crt.winograd", r"plus<P>\(u3, product\[4\]\)", "u3", header="crt/winograd.cuh"
    ),
    "a difference of blocks the wrong way round": Plant(
        "crt.winograd", r"minus<P>\(y22, t1\)", "minus<P>(t1, y22)", header="crt/winograd.cuh"
    ),
    "sums of residues not reduced": Plant(
        "crt.winograd", r"__viaddmin_u16x2\(x \+ y, LESS_P, x \+ y\)", "x + y", header="crt/winograd.cuh"
    ),
    "factors of the modulus before": Plant(
        "crt.winograd", r"modulus\(tile\.product / PRODUCTS\)", "modulus(tile.product / 8)", header="crt/in_turn.cuh"
    ),
    "factors of the modulus before, in lockstep": Plant(
        "crt.lockstep", r"modulus\(tile\.product / PRODUCTS\)", "modulus(tile.product / 8)"
    ),
    "both blocks of a cluster take the same share of B": Plant(
        "crt.shared", r" \+ rank \* SHARE, \(1", ", (1", header="crt/shared_tile.cuh"
    ),
    "a modulus too few on shared tiles": Plant(
        "crt.certified_shared", r"residues, plan\[PLAN_COUNT\], m", "residues, plan[PLAN_COUNT] - 1, m"
    ),
    "every tile passes the bound": Plant(
        "crt.first_wave", r"worst\[4 \* t \+ warp\] = most", "worst[4 * t + warp] = 0.0f"
    ),
    "the lower half of C's last row not written": Plant(
        "crt.winograd", r"within >= half_m \|\| row >= m", "within >= half_m || row >= m - 1"
    ),
    "a column of the left half taken for the right": Plant("crt.winograd", r"block % 2 \* columns;", "block % 2;"),
    "the depth of one half of B": Plant("crt.winograd", r"block / 2 \* depths", "0"),
    "a chunk of B not loaded again": Plant(
        "crt.one_pass", r"load\(chunk\);(?=\n *__syncthreads)", ";", header="crt/one_pass.cuh"
    ),
    "narrow tiles begin 16 columns early": Plant(
        "crt.two_widths", r"min\(col, wide\) \*", "min(col, wide - 1) *", header="crt/two_widths.cuh"
    ),
    "the last 16 columns of a wide tile left out": Plant(
        "crt.two_widths", r"part < WIDTH / 16", "part < NARROW / 16", header="crt/two_widths.cuh"
    ),
    "a row of C too many": Plant(
        "crt.fused", r"row < m && column < n", "row <= m && column < n", header="crt/eight.cuh"
    ),
    "a quarter of each step of INT8 left out": Plant("crt.unsigned", r"s < BK / 32;", "s < BK / 32 - 1;"),
    "fewer moduli than the record says": Plant("crt.fused_14", record={"defines": {"NUMBERS": "12"}}),
}

OZAKI = {
    "the largest slice of B left out": Plant(
        "ozaki.fused_bf16_d9", r"range\(min\(S, D - p\)\)", "range(1, min(S, D - p))"
    ),
    "a diagonal of pairs left out": Plant(
        "ozaki.fused_bf16_d6", r"range\(min\(S, D - p\)\)", "range(min(S, D - p - 1))"
    ),
    "a pair's scale off by one": Plant(
        "ozaki.fused_bf16_d9", r"power\(-\(p \+ q\) \* STEP\)", "power(-(p + q) * STEP - 1)"
    ),
    "a slice not taken off what is left": Plant("ozaki.fused_bf16_d9", r"        left = left - part\n", ""),
    "an Inf counted as the largest": Plant(
        "ozaki.fused_bf16_d5", r"return ct\.where\(finite\(x\), ct\.abs\(x\), 0\.0\)", "return ct.abs(x)"
    ),
    "the columns' scales forgotten": Plant(
        "ozaki.rows_bf16_d9", r" \+ ct\.load\(c_b, \(col,\), \(BN,\)\)\.reshape\(\(1, BN\)\)", ""
    ),
    "a step of K left out": Plant(
        "ozaki.fused_fp16_d9", r"range\(ct\.cdiv\(a\.shape\[2\], BK\)\)", "range(a.shape[2] // BK)"
    ),
    "8-bit slices of the step before": Plant(
        "ozaki.fused_e4m3_d16", r"part \* 2\.0 \*\* \(p \* STEP\)", "part * 2.0 ** (p * STEP - 1)"
    ),
    "every slice of B scaled as the first": Plant(
        "ozaki.naive_bf16", r"ct\.load\(scale_b, \(q,\)", "ct.load(scale_b, (0,)"
    ),
    "an Inf or NaN of A taken for zero": Plant("ozaki.fused_bf16_d5", r'left, float\("nan"\)\)', "left, 0.0)"),
}

GELU_GROUPS = r"first \+ u \* THREADS < groups"
PYTORCH = {
    "the last of the tail not computed": Plant("pytorch.gelu", r"tail < n", "tail < n - 1"),
    "four elements behind the last computed": Plant("pytorch.gelu", GELU_GROUPS, "first + u * THREADS <= groups", 0),
    "a load's elements never stored": Plant(
        "pytorch.gelu_two", r"(?s)u < UNROLL(.*?)u < UNROLL", r"u < UNROLL\1u < UNROLL - 1"
    ),
    "a load's elements stored in another's place": Plant(
        "pytorch.gelu_two", r"y4\[first \+ u \* THREADS\]", "y4[first + u]"
    ),
    "the square root of two instead of 1.41421": Plant("pytorch.gelu", r"1\.41421f", "1.41421356f"),
    "the formula with tanh": Plant(
        "pytorch.gelu", r"erff\(x \* RECIPROCAL\)", "tanhf(0.79788456f * (x + 0.044715f * x * x * x))"
    ),
}

CUTE = {
    "a tile of the article's ring read before it has arrived": Plant(
        "cute.article_three_stages", r"cp_async_wait<STAGES - 2>", "cp_async_wait<STAGES - 1>", 0
    ),
    "the article's order of blocks where it leaves tiles out": Plant(
        "cute.article_l2_swizzle", record={"multiple_of": {"m": 128, "n": 128, "k": 64}}
    ),
    "C of the article's kernel not transposed": Plant(
        "cute.article_base", r"make_stride\(_1\{\}, m\)", "make_stride(n, _1{})"
    ),
}

PLANTS = LADDER | HOPPER | MEMORY | CRT | OZAKI | PYTORCH | CUTE
