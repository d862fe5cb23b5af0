"""Checks of one record against the contract: each yields what is wrong."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from gemmrepro import registry
from gemmrepro.core import paths
from gemmrepro.core.dtypes import DTYPES
from gemmrepro.core.names import METRICS
from gemmrepro.core.trees import without_comments
from gemmrepro.gpu.baselines import BASELINES
from gemmrepro.judge.published import published_rows
from gemmrepro.operations import Shape, shape_of
from gemmrepro.registry import LARGE_SHAPE, USUAL_SHAPES, Expect, Kernel, Launch, Step, TensorMap, card
from gemmrepro.registry.articles import article_names

Problems = Iterator[str]


def check_entries(kernel: Kernel) -> Problems:
    """A source exists, defines every entry point in its record, and contains no host code."""
    path = kernel.source_path
    if not path.is_file():
        yield f"there is no source kernels/{kernel.family}/{kernel.source}."
    if not path.is_file():
        return
    if kernel.code.compiler == "nvcc":
        yield from _check_cuda(kernel)
    else:
        yield from _check_python(kernel)


def _check_cuda(kernel: Kernel) -> Problems:
    text = text_of(kernel)
    for code in kernel.codes:
        entry = code.code.entry
        defined = re.search(rf'extern "C" __global__[^;{{]*\b{re.escape(entry)}\s*\(', text)
        if not defined:
            yield f'{kernel.source} defines no entry point extern "C" __global__ {entry}(...).'
    host = re.search(r"\bint main\b|<<<", text)
    if host:
        yield f"{kernel.source} holds host code ({host[0]}); the pipeline launches it."


def _check_python(kernel: Kernel) -> Problems:
    defined = kernels_of(kernel.source_path)
    for code in kernel.codes:
        name = code.code.function or code.code.entry
        if code.code.compiler == "cute_dsl":  # the DSL numbers its entry points
            name = name.removesuffix("_0")
        if name not in defined:
            yield f"{kernel.source} defines no kernel {name}; it has {', '.join(defined)}."


def check_includes(kernel: Kernel) -> Problems:
    """A record lists every header under kernels/ that its source includes, since their content enters the build key."""
    if kernel.code.compiler != "nvcc":
        return
    listed = set(kernel.code.headers)
    for header in sorted(listed):
        if not (paths.KERNELS_DIR / header).is_file():
            yield f"there is no header kernels/{header}."
    missing = sorted(included(kernel.source_path) - listed)
    if missing:
        lacks = f"{', '.join(missing)}, which Code.headers lacks"
        yield f"{kernel.source} includes {lacks}: its edits would rebuild nothing."
    idle = sorted(listed - included(kernel.source_path))
    if idle:
        yield f"{kernel.source} does not include {', '.join(idle)} of Code.headers."


TILE = ("bm", "bn", "bk")
"""Constants that every tiled source must define."""


def check_constants(kernel: Kernel) -> Problems:
    """Constants in a record equal those in its source; the report and the launches use the record's."""
    if not kernel.source_path.is_file():
        return
    if kernel.code.compiler == "cutile":
        yield from _check_cutile(kernel)
        return
    if kernel.code.compiler == "cute_dsl":
        defined: dict[str, int | None] = {**module_constants(kernel.source_path)}
    else:
        named = constants(text_of(kernel), kernel.code.defines)
        defined = {name: value_of(expression, named) for name, expression in named.items()}
    for name, value in kernel.code.params.items():
        actual = defined.get(name.upper(), defined.get("TILE") if name in TILE else None)
        if actual is None:
            if name in TILE and not kernel.run.variants:
                yield f"{kernel.source} has no constant {name.upper()}, which Code.params gives as {value}."
        else:
            if actual != value:
                yield f"Code.params says {name} = {value}; in {kernel.source} it is {actual}."


def _check_cutile(kernel: Kernel) -> Problems:
    """The constants that a record passes to a function are the function's constant parameters."""
    functions = kernels_of(kernel.source_path)
    for code in kernel.codes:
        name = code.code.function or code.code.entry
        pairs = [pair.split("=") for pair in code.code.defines.get("PARAMETERS", "").split(",") if "=" in pair]
        passed = {key: int(value) for key, value in pairs}
        accepted = set(functions.get(name, ()))
        if set(passed) != accepted:
            takes, gives = (", ".join(sorted(names)) for names in (accepted, passed))
            yield f"{name} of {kernel.source} takes the constants {takes}; its record gives {gives}."
        different = {key: value for key, value in code.code.params.items() if passed.get(key.upper(), value) != value}
        if different:
            yield f"Code.params and Code.defines of {name} differ in {', '.join(sorted(different))}."


GRID = (2**31 - 1, 65535, 65535)
THREADS = 1024
SIZES = (512, 4096)
"""Configured sizes whose launches are checked."""

PERSISTENT = 2 * card.REFERENCE.sms
"""Maximum grid of a persistent kernel: two blocks on each SM."""


def check_launches(kernel: Kernel) -> Problems:
    """Launches match the source and the GPU: block shapes, launch bounds, and a grid that covers the output once."""
    for size in SIZES:
        shape = shape_of(kernel.compute.op, size)
        if kernel.takes(shape):
            for name, launch in _launched(kernel, shape):
                yield from _check_limits(kernel, f"{name} on {shape}", launch)
    if kernel.code.compiler == "nvcc" and kernel.source_path.is_file():
        yield from _check_bounds(kernel)
    if kernel.problem.operation.matrix_product and not kernel.run.steps:
        yield from _check_cover(kernel)


def _launched(kernel: Kernel, shape: Shape) -> list[tuple[str, Launch]]:
    """The entry points of a run on `shape`, and their launches."""
    part = kernel.at(shape)
    steps = [step for step in part.steps_at(shape) if isinstance(step, Step)]
    return [(step.entry, step.launch(shape)) for step in steps] or [(part.code.entry, part.launch(shape))]


def _check_limits(kernel: Kernel, what: str, launch: Launch) -> Problems:
    sizes = all(1 <= blocks <= most for blocks, most in zip(launch.grid, GRID, strict=True))
    if not sizes:
        yield f"the grid {launch.grid} of {what} is beyond {GRID}, or empty."
    threads = math.prod(launch.block)
    if not (1 <= threads <= THREADS):
        yield f"{threads} threads per block ({what}); 1 to {THREADS} can be."
    cluster = launch.cluster or (1, 1, 1)
    whole = all(blocks % size == 0 for blocks, size in zip(launch.grid, cluster, strict=True))
    if not whole:
        yield f"the grid {launch.grid} of {what} is no multiple of its cluster {cluster}."


def _check_bounds(kernel: Kernel) -> Problems:
    """The launch bounds of every entry point equal its block size, the largest if that depends on the shape."""
    text = text_of(kernel)
    for code in kernel.codes:
        bound = launch_bounds(text, code.code.entry)
        if bound is None:
            yield f"{code.code.entry} has no __launch_bounds__; write its threads per block."
        threads = value_of(bound, constants(text, code.code.defines)) if bound else None
        blocks = {math.prod(block) for block in code.blocks}
        if threads is not None:
            if max(blocks) < threads and kernel.problem.operation.matrix_product and kernel.takes(LARGE_SHAPE):
                blocks.add(math.prod(code.launch(LARGE_SHAPE).block))
            if max(blocks) != threads:
                launched = f"launched with {sorted(blocks)}"
                yield f"{code.code.entry} is compiled for {threads} threads per block and {launched}."


def _check_cover(kernel: Kernel) -> Problems:
    """The grid has one block per tile of C; a persistent kernel launches one block (or cluster) for a single tile."""
    tiny = Shape(1, 8, 8)
    if kernel.takes(LARGE_SHAPE) and kernel.takes(tiny) and math.prod(kernel.launch(LARGE_SHAPE).grid) <= PERSISTENT:
        small = kernel.launch(tiny)
        if math.prod(small.grid) != math.prod(small.cluster or (1,)):
            yield f"its blocks stay on the GPU, and a single tile takes {math.prod(small.grid)} of them instead of one."
        return
    step = kernel.accepts.multiple_of
    shape = Shape(3 * step.get("m", 43), 5 * step.get("n", 29), step.get("k", 7))
    part = kernel.at(shape)
    rows, columns = (part.code.params.get(name, part.code.params.get("tile")) for name in ("bm", "bn"))
    if not rows or not columns:
        yield "Code.params lacks bm and bn, the tile of C that a block computes."
        return
    tiles = -(-shape.m // rows) * -(-shape.n // columns)
    grid = kernel.launch(shape).grid
    if math.prod(grid) != tiles:
        yield f"C of {shape} has {tiles} tiles of {rows} x {columns}; the launch has a grid of {grid}."


NUMBERS = ("m", "n", "k", "iterations", "alpha", "beta")
SWIZZLES = (0, 32, 64, 128)


def check_signatures(kernel: Kernel) -> Problems:
    """Arguments of every launch are known, and TMA supports every tensor map."""
    arrays = {*_operands(kernel), *kernel.run.workspace}
    for code in kernel.codes:
        unknown = [argument for argument in code.call.arguments if not _is_known(argument, arrays)]
        if unknown:
            known = (
                f"numbers ({', '.join(NUMBERS)}), arrays ({', '.join(sorted(arrays))}), map: and array: before an array"
            )
            yield f"{code.code.entry} has the argument {', '.join(map(str, unknown))}; known are {known}."
        for operand, tensor_map in code.call.tensor_maps.items():
            yield from _check_map(kernel, operand, tensor_map)


def _operands(kernel: Kernel) -> dict[str, str]:
    """The operands of its operation, and their types."""
    names = [each.name for each in kernel.problem.operation.inputs]
    return {name: kernel.problem.dtype_of(name) for name in (*names, "c")}


def _is_known(argument: str | int, arrays: set[str]) -> bool:
    if isinstance(argument, int) or argument in NUMBERS or re.fullmatch(r"[mnk]=\d+", argument):
        return True
    return re.sub(r"^(map|array):", "", argument) in arrays


def _check_map(kernel: Kernel, operand: str, tensor_map: TensorMap) -> Problems:
    if tensor_map.swizzle not in SWIZZLES:
        yield f"the swizzle of {operand} is {tensor_map.swizzle}: use {SWIZZLES}."
    dtypes = _operands(kernel) | {name: buffer.dtype for name, buffer in kernel.run.workspace.items()}
    if operand in dtypes:
        width = tensor_map.box[1] * DTYPES[dtypes[operand]]
        if tensor_map.swizzle and width > tensor_map.swizzle:
            yield f"a row of {operand}'s box is {width} bytes, wider than its swizzle of {tensor_map.swizzle}."
    if not all(1 <= length <= 256 for length in tensor_map.box):
        yield f"the box {tensor_map.box} of {operand} is beyond TMA's 256 elements an axis."


def check_promises(kernel: Kernel) -> Problems:
    """A record's expectations about machine code are valid regular expressions, each with a reason."""
    if not any(code.promises.expects for code in kernel.codes):
        yield "it expects nothing of its machine code; add an Expect that shows its idea."
    for code in kernel.codes:
        for expect in code.promises.expects:
            yield from _check_expect(kernel, expect)
    for refusal in kernel.promises.refusals:
        if not _compiles(refusal.message) or not refusal.why:
            yield f"the refusal '{refusal.message}' is no regular expression, or gives no reason."


def _check_expect(kernel: Kernel, expect: Expect) -> Problems:
    if not _compiles(expect.opcode):
        yield f"the opcode '{expect.opcode}' is no valid regular expression."
    if not expect.why:
        yield f"the opcode '{expect.opcode}' is expected without a reason (why)."
    if expect.least < 0 or (expect.most is not None and expect.most < expect.least):
        yield f"the opcode '{expect.opcode}' is expected between {expect.least} and {expect.most} times."


def _compiles(expression: str) -> bool:
    try:
        re.compile(expression)
    except re.error:
        return False
    return True


def check_shapes(kernel: Kernel) -> Problems:
    """`Accepts` is consistent with the shapes that a kernel takes."""
    usual = [shape for shape in USUAL_SHAPES if kernel.takes(shape)]
    if not usual:
        yield f"it takes none of {', '.join(map(str, USUAL_SHAPES))}; its launch is never looked at."
    for shape in kernel.promises.gate_shapes:
        if not kernel.takes(shape):
            yield f"it refuses {shape}, one of its own gate_shapes."
    for shape in usual[:1]:
        for axis, step in kernel.accepts.multiple_of.items():
            odd: Shape = replace(shape, **{axis: getattr(shape, axis) + 1})
            if step <= 1 or kernel.takes(odd):
                yield f"{axis.upper()} must be a multiple of {step}, and yet it takes {odd}; leave multiples of 1 out."
    if kernel.timing.timed_to:
        timed = Shape.cube(kernel.timing.timed_to)
        if kernel.problem.operation.matrix_product and not kernel.takes(timed):
            yield f"it is timed to {timed}, which it refuses."


def check_stories(kernel: Kernel) -> Problems:
    """A record's story refers to existing counters, published systems, baselines and kernels."""
    story, baseline = kernel.story, kernel.timing.baseline
    if not kernel.rung or not kernel.title:
        yield "it has no rung or no title."
    if not story.idea:
        yield "Story.idea is empty; say in one sentence what is new."
    if baseline is not None and baseline not in BASELINES:
        yield f"there is no baseline '{baseline}'; known are {', '.join(BASELINES)}."
    unknown = [counter for counter in story.evidence if counter not in METRICS]
    if unknown:
        yield f"Story.evidence names {', '.join(unknown)}, which no stage reads; counters are METRICS of core/names.py."
    if story.article is not None and story.article not in article_names():
        yield f"there is no article '{story.article}'."
    if story.published_system:
        systems = {row["system"] for row in published_rows() if row["article"] == story.article}
        if story.published_system not in systems:
            yield f"numbers.csv of article '{story.article}' has no system '{story.published_system}'."
    if story.gain_over:
        known = {other.id for name in registry.family_names() for other in registry.kernels(name)}
        if story.gain_over not in known or story.gain_over == kernel.id:
            yield f"Story.gain_over names '{story.gain_over}', which is no other kernel."


CHECKS = (
    check_entries,
    check_includes,
    check_constants,
    check_launches,
    check_signatures,
    check_promises,
    check_shapes,
    check_stories,
)


def text_of(kernel: Kernel) -> str:
    """The text of a kernel's source and of its family's own headers, without comments."""
    own = [path for path in kernel.header_paths if path.parent == kernel.source_path.parent]
    texts = [path.read_text() for path in (kernel.source_path, *own) if path.is_file()]
    return without_comments("\n".join(texts))


def included(path: Path) -> set[str]:
    """Headers under kernels/ that a file includes, directly or indirectly; paths are relative to kernels/."""
    reached: set[str] = set()
    pending = [path]
    while pending:
        file = pending.pop()
        if not file.is_file():
            continue
        for name in re.findall(r'^\s*#include "([^"]+)"', file.read_text(), re.M):
            if name not in reached:
                reached.add(name)
                pending.append(paths.KERNELS_DIR / name)
    return reached


def launch_bounds(text: str, entry: str) -> str | None:
    """The first argument of an entry point's ``__launch_bounds__``, as text; None if it has none."""
    match = re.search(rf"__launch_bounds__\(([^,()]*(?:\([^()]*\)[^,()]*)*)[^;{{]*?\)\s*{entry}\s*\(", text)
    return match[1] if match else None


def constants(text: str, defines: Mapping[str, str]) -> dict[str, str]:
    """Integer constants of a source and their expressions; the record's `defines` override the source's macros."""
    whole = text.replace("\\\n", " ")
    own = re.findall(r"^[ \t]*#define (\w+) ([^\n]+)$", whole, re.M)
    macros = {**dict(own), **defines}
    named = {name: value.strip() for name, value in macros.items() if re.fullmatch(r"[\w\s()*/%+<>-]+", value)}
    for declaration in re.findall(r"\bconstexpr (?:int|unsigned|long long|size_t) ([^;]+);", text):
        if declaration.strip() in macros:  # constexpr int PARAMETERS;
            declaration = macros[declaration.strip()]
        for name, value in _assignments(declaration):
            named.setdefault(name, value)
    return named


def _assignments(declaration: str) -> Iterator[tuple[str, str]]:
    """``A = 1, B = f(2, 3)`` as pairs of name and expression; commas inside parentheses do not separate."""
    depth, start = 0, 0
    for place, character in enumerate(declaration + ","):
        depth += (character in "({[") - (character in ")}]")
        if character == "," and depth == 0:
            name, equals, value = declaration[start:place].partition("=")
            if equals:
                yield name.strip(), value.strip()
            start = place + 1


def value_of(expression: str, named: Mapping[str, str]) -> int | None:
    """The value of an expression of C, or None if it is more than integer arithmetic on constants."""
    for _ in range(20):  # a constant may be defined in terms of itself
        expression = re.sub(r"\b[A-Za-z_]\w*", lambda name: f"({named.get(name[0], name[0])})", expression)
        if re.fullmatch(r"[\d\s()+*/%<>-]+", expression):
            break
    else:
        return None
    try:
        return int(eval(expression.strip().replace("/", "//")))
    except (SyntaxError, ZeroDivisionError, ValueError):
        return None


def kernels_of(path: Path) -> dict[str, tuple[str, ...]]:
    """Names of functions decorated as kernels, each with its constant parameters (annotated ``Constant``)."""
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    return {node.name: _constants(node) for node in functions if any(map(_is_kernel, node.decorator_list))}


def module_constants(path: Path) -> dict[str, int]:
    """Integer constants that a module assigns."""
    integers: dict[str, int] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, int):
            integers |= {target.id: node.value.value for target in node.targets if isinstance(target, ast.Name)}
    return integers


def _is_kernel(decorator: ast.expr) -> bool:
    node = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(node, ast.Attribute) and node.attr == "kernel"


def _constants(function: ast.FunctionDef) -> tuple[str, ...]:
    return tuple(
        argument.arg
        for argument in function.args.args
        if argument.annotation is not None and "Constant" in ast.unparse(argument.annotation)
    )
