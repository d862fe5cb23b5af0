"""Entry points with rings of TMA and mbarriers, each with the problems that the model of hopper_grid.hpp runs it on."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import hopper_grid
import numpy as np
import staged

from gemmrepro import registry
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel, Step, TensorMap

SEEDS, TRIES = range(0, 4), range(4, 24)
"""Three fixed orders (latest, earliest, latest in reverse) and a random one; more of those, for a planted bug."""
NUMBERS = 12
"""Moduli of the rings of kernels/crt: as few as moduli.cuh takes."""
BYTES = {"fp32": 4, "int32": 4, "uint32": 4}
MATRICES = {"a": "A.data(), m, k", "b": "B.data(), n, k", "c": "C.data(), m, n", "z": "Z.data(), m, n"}
MATRICES["c0"] = "C0.data(), m, n"


CERTIFIED, WINOGRAD = (
    [kernel for kernel in registry.kernels("crt") if array in kernel.run.workspace] for array in ("worst", "factors_a")
)
"""Those that bound every element, and those that multiply quarters of A and B seven times."""


@dataclass(frozen=True)
class Case:
    """A problem, and how many clusters (blocks, where there are none) of a persistent kernel work on it."""

    shape: Shape
    clusters: int = 2


@dataclass(frozen=True)
class Ring:
    """An entry point, the source that holds it, and how it is compiled and launched.

    Attributes:
        kernel: the record of the part that has this entry point.
        driver: the file that calls it, with words in capitals for `words`.
    """

    kernel: Kernel
    entry: str
    text: Callable[[], str]
    cases: tuple[Case, ...]
    threads: int
    lengths: tuple[int, int, int]
    words: Mapping[str, str] = field(default_factory=dict)
    defines: Mapping[str, object] = field(default_factory=dict)
    driver: str = "ring_driver.cpp"
    header: str = "hopper_grid.hpp"
    as_model: Callable[[str], str] = hopper_grid.as_model
    persistent: bool = True

    def program(self, source: str | None = None, **defines: object) -> Path:
        """The program of its source, or of a planted one. Raises CalledProcessError."""
        text = (hopper_grid.FOLDER / self.driver).read_text()
        for word, instead in {**self.words, "SOURCE": self.as_model(source or self.text())}.items():
            text = re.sub(rf"\b{word}\b;?", lambda _, instead=instead: instead, text)
        given = [f"-D{name}={value}" for name, value in {**self.defines, **defines}.items()]
        return hopper_grid.compile_program(text, self.header, defines=given)

    def run(self, program: Path, case: Case, seeds: range) -> tuple[str, str]:
        """What the program says of its first problem under any of `seeds`, "" if there is none; and what it prints."""
        shape, blocks = case.shape, math.prod(self.lengths)
        grid = (case.clusters * blocks, 1) if self.persistent else self.kernel.launch(shape).grid[:2]
        numbers = (*(shape.m, shape.n, shape.k), *grid, self.threads, blocks, seeds.start, seeds.stop, *self.lengths)
        return hopper_grid.run_program(program, *numbers)

    def problem(self, source: str | None = None) -> str:
        """The first problem in any order on any of its cases; a planted source is tried in more of them."""
        program = self.program(source)
        problems = (
            f"{case}: {said}"
            for seeds in ((SEEDS, TRIES) if source else (SEEDS,))
            for case in self.cases
            if (said := self.run(program, case, seeds)[0])
        )
        return next(problems, "")


def _lengths(kernel: Kernel) -> tuple[int, int, int]:
    return kernel.launch(Shape(64, 64, 4096)).cluster or (1, 1, 1)


def gemm(
    part: Kernel,
    cases: tuple[Case, ...],
    whole: Kernel | None = None,
    text: Callable[[], str] | None = None,
    types: tuple[str, str] = ("bf16", "bf16"),
    header: str = "hopper_grid.hpp",
    **defines: object,
) -> Ring:
    """A ring of `part`, one of the parts of `whole`, whose operands and results have these `types` in C++."""
    whole, large, call = whole or part, Shape(4096, 4096, 4096), part.call
    arrays = {
        name: int(np.prod(array.lengths(large))) * BYTES[array.dtype]
        for name, array in whole.run.workspace.items()
        if name != "z"
    }
    maps = {name: made for name, made in call.tensor_maps.items()}
    named = [re.sub("^map:", "map_", str(argument)) for argument in call.arguments]
    declared = (f"const TensorMap map_{name}{{{MATRICES[name]}, {box(made)}}};" for name, made in maps.items())
    return Ring(
        whole,
        part.code.entry,
        text or whole.source_path.read_text,
        cases,
        part.launch(large).block[0],
        _lengths(part),
        {
            "WORKSPACE": " ".join(f"Workspace {name}({size});" for name, size in arrays.items()),
            "MAPS": " ".join(declared),
            "CALL": f"{part.code.entry}({', '.join(named)});",
            "EARLY": str(whole.launch(large).early).lower() + ";",
        },
        {"OPERAND": types[0], "RESULT": types[1], "MOST": 1, "SCALED": 0, "ELEMENT": types[0]} | defines,
        header=header,
        persistent=part.launch(Shape(1 << 14, 1 << 14, 64)).grid[1] == 1,
    )


def box(made: TensorMap) -> str:
    return f"{made.box[0]}, {made.box[1]}, {made.swizzle}"


def _parts(kernel: Kernel, cases: Callable[[Kernel], tuple[Case, ...]], **how: object) -> Iterator[tuple[str, Ring]]:
    for part in kernel.parts:
        name = kernel.id if len(kernel.parts) == 1 else f"{kernel.id}/{part.code.entry}"
        yield name, gemm(part, cases(part), kernel, **how)


def _hopper(kernel: Kernel) -> tuple[Case, ...]:
    """More steps than stages and fewer; several tiles a block, and none for some; tails."""
    if kernel.id in ("hopper.wgmma", "hopper.tiles"):
        return (Case(Shape(130, 136, 200)),)
    if kernel.launch(Shape(4096, 4096, 64)).grid[1] > 1:
        return Case(Shape(200, 264, 64 * 9)), Case(Shape(128, 256, 64))
    return Case(Shape(264, 520, 64 * 5)), Case(Shape(520, 264, 64 * 2)), Case(Shape(256, 256, 64), clusters=3)


def _form(part: Kernel) -> tuple[Case, ...]:
    """Several tiles a block, of an odd number of steps; meetings; fewer steps than pieces of C, and no tile at all.
    The last tile of each row and column is cut to eight, the last step, too."""
    height, width = part.params["bm"] * part.params["cluster"], part.params["bn"]

    def tiles(rows: int, cols: int, steps: int, clusters: int = 2) -> Case:
        return Case(Shape(height * (rows - 1) + 8, width * (cols - 1) + 8, 64 * (steps - 1) + 8), clusters)

    cases = [tiles(2, 3, 5), tiles(1, 1, 2, clusters=3)]
    if part.params["every"]:  # two clusters meet before their fifth tiles
        cases.append(tiles(1, 10, 1))
    if part.code.entry == "own_128x128":  # C is staged where stages were
        cases.append(tiles(1, 10, 2))
    if "narrow" in part.params:  # a column of wide tiles and two of narrow ones
        cases.insert(0, Case(Shape(140, width + 2 * part.params["narrow"], 64 * 3)))
    return tuple(cases)


def _plan(part: Kernel) -> tuple[Case, ...]:
    """Tiles of a cluster, the last ones cut to eight; a cluster for each where K is in parts."""
    lengths = _lengths(part)

    def tiles(rows: int, cols: int, steps: int) -> Case:
        high = part.params["bm"] * lengths[0] * (rows - 1) + 8
        wide = part.params["bn"] * lengths[1] * (cols - 1) + 8
        m, n = (wide, high) if part.code.entry.endswith("_x") else (high, wide)
        return Case(Shape(m, n, 64 * (steps - 1) + 8), rows * cols if lengths[2] > 1 else 2)

    return tiles(2, 2, 9), tiles(1, 3, 5), tiles(1, 1, 3)


PLANS = "joint_128x32_x joint_128x128 joint_128x256 joint_256x192 alternating_64x72 alternating_64x96_x "
PLANS += "alternating_64x128"
"""Shared rows, shared columns, both and neither, parts of K, exchanged operands, odd steps of a group of two."""


def _plans() -> Iterator[tuple[str, Ring]]:
    whole = registry.kernel("hopper.any_shape")
    for part in whole.parts:
        entry = part.code.entry

        def text(entry: str = entry) -> str:  # without the other entry points, which take long to compile
            others = rf'extern "C" [^{{]*?\b(?!{entry}\()\w+\(OPERANDS\) \{{.*?\n\}}\n'
            return re.sub(others, "", whole.source_path.read_text(), flags=re.DOTALL)

        if entry in PLANS.split():
            yield f"{whole.id}/{entry}", replace(gemm(part, _plan(part), whole, text), persistent=True)


def _split() -> Ring:
    """Three tiles for two clusters, and so much to save that the last wave is split."""
    kernel = registry.kernel("hopper.stream_k")

    def text() -> str:
        source, times = re.subn(r"(constexpr int WORTH =) \d+;", r"\1 2;", kernel.source_path.read_text())
        assert times == 1
        return source

    return gemm(kernel, (Case(Shape(256, 768, 64 * 8)),), text=text)


def _ada(kernel: Kernel) -> tuple[Case, ...]:
    """More steps than slots, two tiles or more a block, tails; one step, and a block without a tile."""
    return Case(Shape(264, 100, 200), clusters=1), Case(Shape(100, 136, 64), clusters=3)


def _fp8(kernel: Kernel) -> tuple[Case, ...]:
    """More steps than stages and fewer, one and an odd number; several tiles a block; tails."""
    return (
        *(Case(Shape(136, 264, 128 * 6 + 16), 1), Case(Shape(264, 136, 128 * 2)), Case(Shape(264, 200, 112), 1)),
        Case(Shape(136, 264, 128 * 7), 1),
    )


EPILOGUE = Case(Shape(264, 136, 64 * 6)), Case(Shape(136, 392, 64 * 2)), Case(Shape(392, 264, 64))
"""Several tiles, the last of each row and column cut to eight; more steps than stages, fewer, and one."""


def _residues(kernel: Kernel, step: Step) -> Ring:
    """A ring of kernels/crt: twelve tiles of three steps; several rows and columns of tiles, of one step."""
    cases = (Case(Shape(100, 200, 300)), Case(Shape(140, 264, 40), clusters=3))
    if step.entry == "find_peaks":  # a cluster without a tile
        cases = (Case(Shape(200, 140, 700)),)
    if kernel in WINOGRAD:
        cases = (Case(Shape(150, 200, 300)),)
    if kernel.id == "crt.shared":  # of the second block of each cluster, one consumer's rows lie below C
        cases = (Case(Shape(600, 200, 300)), Case(Shape(150, 200, 1100), clusters=3))
    if kernel.id == "crt.two_widths":  # a wide and a narrow column of tiles; a narrow one alone; two of each
        cases = (Case(Shape(100, 400, 300)), Case(Shape(140, 190, 40), 1), Case(Shape(20, 800, 300), 3))

    def text() -> str:
        """The source with what it includes of kernels/crt in its place; steps that have no ring left out."""
        rings = {each.entry for each in kernel.run.steps if getattr(each, "tensor_maps", None)}
        entries = r'^extern "C" __global__ void __launch_bounds__\([^)]*\)\s*(\w+)\(.*?^\}\n'
        whole = hopper_grid.inlined(kernel.source_path, staged.MODELLED)
        flags = re.DOTALL | re.MULTILINE
        return re.sub(entries, lambda found: found[0] if found[1] in rings else "", whole, flags=flags)

    launch, blocks = step.launch(Shape(150, 200, 300)), kernel in WINOGRAD
    peaks, widths = step.entry == "find_peaks", kernel.id == "crt.two_widths"
    a, b = step.tensor_maps
    kind = "int4*" if "sums" in step.arguments else "uint2*" if widths else "uint4*"
    names = {f"map:{a}": "map_a", f"map:{b}": "map_b", "peaks_a": "peaks_a.data()", "peaks_b": "peaks_b.data()"}
    names |= dict.fromkeys(("sums", "residues"), f"reinterpret_cast<{kind}>(memory.data())")
    names["meeting"] = "reinterpret_cast<Meeting*>(counters.data())"
    shape = "half_rows(m), half_columns(n), half_depth(k)" if blocks else "m, n, k"
    return Ring(
        kernel,
        step.entry,
        text,
        cases,
        launch.block[0],
        launch.cluster or (1, 1, 1),
        {
            "PROBLEM": f"({shape}, {'1, 127' if peaks else 'PRODUCTS_OF * COUNT, 256'});",
            "CALL": f"{step.entry}({', '.join(names.get(argument, argument) for argument in step.arguments)});",
            "BOX_A": box(step.tensor_maps[a]),
            "BOX_B": box(step.tensor_maps[b]),
            "PRODUCTS_A_MODULUS": "PRODUCTS;" if blocks else "1;",
        },
        {"NUMBERS": NUMBERS, "ALONE": 0, "PADDED": int(kernel.id != "crt.shared")}
        | ({"TWO_WIDTHS": 1} if widths else {})
        | ({"PEAKS": 1} if peaks else {}),
        "crt_driver.cpp",
        "certified_grid.hpp",
    )


def _all() -> Iterator[tuple[str, Ring]]:
    for kernel in registry.kernels("hopper"):
        plain = kernel.compute.op == "gemm" and kernel.code.headers and kernel.compute.dtype_acc == "fp32"
        if plain and kernel.compute.dtype_in == "bf16" and kernel.id != "hopper.any_shape":
            yield from _parts(kernel, _form if kernel.id == "hopper.by_energy" else _hopper)
    yield "hopper.stream_k/split", _split()
    yield from _plans()
    for kernel, beta in (("epilogue", 0.5), ("epilogue", 0), ("epilogue_apart", -0.25)):
        apart = {"SLACK": "0.05f", "APART": 1} if "apart" in kernel else {"SLACK": "1e-6f"}
        name = f"hopper.{kernel}" + ("" if beta else "/beta = 0")
        yield name, gemm(registry.kernel(f"hopper.{kernel}"), EPILOGUE, BETA=beta, **apart)
    for name in ("tma", "stored", "half_tiles"):
        kernel = registry.kernel(f"ada.{name}")
        yield kernel.id, gemm(kernel, _ada(kernel), header="mma_grid.hpp", types=("fp16", "float"), MOST=2)
    for kernel in registry.kernels("fp8"):
        scaled = 2 * (kernel.compute.op == "gemm_scaled")
        yield from _parts(kernel, _fp8, types=("e4m3", "fp16"), SCALED=scaled)
    for kernel in registry.kernels("crt"):
        # Not the same sources with other numbers of moduli; of certified ones, a list names the tiles: test_certified.
        if not re.search(r"_\d+$", kernel.id) and kernel not in CERTIFIED:
            for step in kernel.run.steps:
                if isinstance(step, Step) and step.tensor_maps:
                    yield (
                        f"{kernel.id}/{step.entry}" if step.entry != "multiply" else kernel.id,
                        _residues(kernel, step),
                    )


RINGS = dict(_all())
