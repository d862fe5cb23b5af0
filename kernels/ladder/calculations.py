"""What follows from the article's listings and from the machine code of its GPU without running anything."""

from __future__ import annotations

import math
import re

from gemmrepro.errors import UserError
from gemmrepro.judge.evidence import NotMeasured
from gemmrepro.judge.metrics.calculated import Calculated, Inputs
from gemmrepro.operations import VECTOR_ELEMENTS, Shape

WARP = 32
FLOAT_BITS = 32
SECTOR_BITS = 256
MOST_REGISTERS = 255
"""Of a thread: SASS names a register with eight bits, and the last number is the constant zero."""

_WIDTHS = {"": 1, ".64": 2, ".128": 4}
"""32-bit words that a load brings a thread, by the suffix of its opcode."""


def _count(text: str, opcode: str) -> int:
    """Instructions of a listing with this opcode, whatever its modifiers."""
    return len(re.findall(rf"\b{opcode}(?:\.[A-Z0-9_]+)*\b", text))


def _words(text: str, opcode: str) -> int:
    """32-bit words per thread that the loads of a listing with this opcode bring."""
    found = re.findall(rf"\b{opcode}((?:\.[A-Z0-9_]+)*)\b", text)
    return sum(
        next(width for suffix, width in reversed(_WIDTHS.items()) if modifiers.endswith(suffix)) for modifiers in found
    )


def lines_of_l1(given: Inputs) -> Calculated:
    """GFLOP/s of level 1 if the L1 cache looks up one line of 128 bytes per cycle and SM and nothing else takes time.

    A multiply-add takes two loads in the machine code. A warp's 32 lanes walk rows: its load of A touches a line a
    lane, its load of B one.
    """
    (code,), (kernel,) = given.codes, given.kernels
    loads, products = _count(code.hot_loop, "LDG"), _count(code.hot_loop, "FFMA")
    if loads != 2 * products or not products:
        raise UserError(f"level 1 has {loads} loads for {products} multiply-adds in its loop, and not two for each.")
    lines = min(WARP, kernel.params["bm"]) + math.ceil(WARP / kernel.params["bm"])
    sms, clock = given.rate("sms"), given.rate("clock")
    gflops = sms * clock * 1e-3 * 2 * WARP / lines
    return Calculated(
        gflops, f"{loads} loads for {products} FFMA in the loop; {lines} lines a step, {sms:g} SMs at {clock:g} MHz"
    )


def rows_of_b_of_a_warp(given: Inputs) -> Calculated:
    """Rows of B that the 32 threads of a warp read at one step of level 1, by the indices of its listing.

    x = threadIdx.x is the row of C and of A, y = threadIdx.y its column; B[i * N + y] is read. Option: bm, the block's
    extent along x.
    """
    side = int(given.option("bm"))
    threads = [(lane % side, lane // side) for lane in range(WARP)]
    a_rows, b_columns = len({x for x, _ in threads}), len({y for _, y in threads})
    return Calculated(1, f"row i of B, {b_columns} column; rows of A and of C: {a_rows}")


def bits_of_sectors(given: Inputs) -> Calculated:
    """Bits of the sectors that the coalesced loads of `options.threads` threads touch, one float each."""
    threads = int(given.option("threads"))
    sectors = -(-threads * FLOAT_BITS // SECTOR_BITS)
    return Calculated(sectors * SECTOR_BITS, f"{threads} loads of {FLOAT_BITS} bits touch {sectors} of {SECTOR_BITS}")


def shared_words_per_product(given: Inputs) -> Calculated:
    """Words of shared memory that a thread reads for each multiply-add of the main loop, in the machine code.

    With two kernels: that of the first over that of the second.
    """
    found = [(_words(code.hot_loop, "LDS"), _count(code.hot_loop, "FFMA")) for code in given.codes]
    shown = " and ".join(f"{words} words for {products} FFMA" for words, products in found)
    ratios = [words / products for words, products in found]
    return Calculated(ratios[0] / ratios[1] if len(ratios) > 1 else ratios[0], shown)


def loads_of_a_global_word(given: Inputs) -> Calculated:
    """How often a block of level 7 loads each word of its tiles of A and B from global memory."""
    (code,), (kernel,) = given.codes, given.kernels
    p = kernel.params
    threads = math.prod(kernel.launch(Shape.cube(4096)).block)
    of_c = p["wm"] * p["wn"] // WARP // 4  # float4 of C a thread reads where beta is not 0
    loads = sum(count for opcode, count in code.instructions.items() if re.fullmatch(r"LDG\..*128.*", opcode)) - of_c
    tile = p["bk"] * (p["bm"] + p["bn"])
    return Calculated(loads * 4 * threads / tile, f"{loads} loads of 16 bytes, {threads} threads, {tile} words")


def registers_of_a_thread(given: Inputs) -> Calculated:
    """Kilobytes of registers that a thread can have at most."""
    return Calculated(MOST_REGISTERS * 4 / 1024, f"{MOST_REGISTERS} registers of 4 bytes")


def constant(given: Inputs) -> Calculated:
    """A constant that our kernel is built or launched with; option `name`, which is a parameter, or ``threads``."""
    (kernel,), name = given.kernels, str(given.options.get("name"))
    if name == "threads":
        return Calculated(math.prod(kernel.launch(Shape.cube(given.n or 4096)).block), "threads of a block")
    return Calculated(kernel.params[name], f"{name.upper()} of the source")


def vector_elements(given: Inputs) -> Calculated:
    """Elements that level 0 adds here."""
    return Calculated(VECTOR_ELEMENTS, "elements")


def dram_rate(given: Inputs) -> Calculated:
    """GB/s of DRAM during a launch of the first kernel; over those of the second, if there is one."""
    rates = [given.counter("dram__bytes.sum.per_second", "GB/s", index) for index in range(len(given.kernels))]
    return Calculated(rates[0] / rates[1] if len(rates) > 1 else rates[0])


def counts(given: Inputs) -> Calculated:
    """The counters `options.counter`, blanks between, summed: of the first kernel over the second. Option: `unit`."""
    name, unit = str(given.options["counter"]), str(given.options.get("unit", ""))
    first, second = (sum(given.counter(each, unit, index) for each in name.split()) for index in range(2))
    if not second:
        raise NotMeasured(f"{given.kernels[1].id} counted none of {name}")
    return Calculated(first / second, f"{first:,.0f} and {second:,.0f}")


def loads_of_an_output(given: Inputs) -> Calculated:
    """Global load instructions for an output: in K those of the first kernel, or over those of the second."""
    loads = [_loads(given, index) for index in range(len(given.kernels))]
    uncounted = any("hot_loop" in source for source in given.sources)
    working = "in the machine code of the main loop" if uncounted else "counted by the profiler"
    return Calculated(loads[0] / loads[1] if len(loads) > 1 else loads[0], working)


def _loads(given: Inputs, index: int) -> float:
    """Global load instructions for each output and step of K, as the profiler counted them, else in the main loop.

    Every output takes K multiply-adds, so it is LDG over FFMA in the loop, however far that is unrolled.

    Raises:
        NotMeasured: there is neither.
    """
    kernel, n = given.kernels[index], given.n or 0
    try:
        return given.counter("smsp__sass_inst_executed_op_global_ld.sum", "inst", index) * WARP / n**3
    except NotMeasured as uncounted:
        evidence = given.evidence
        record = evidence.build(kernel.id, given.toolkit) if evidence else None
        loops = {arch: code.hot_loop for arch, code in sorted(record.archs.items())} if record else {}
        at_hand = str(evidence.measured.arch) if evidence else ""
        arch = at_hand if at_hand in loops else next(iter(loops), "")
        loads, products = (_count(loops.get(arch, ""), name) for name in ("LDG", "FFMA"))
        if not (loads and products):
            raise NotMeasured(f"{uncounted}, and no main loop of {kernel.id} shows its loads") from None
        given.sources.append(f"results/build/{given.toolkit}/{kernel.id}.json#archs.{arch}.hot_loop")
        return loads / products
