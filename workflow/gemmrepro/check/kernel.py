"""Checks of one record against the contract: each yields whether something holds, and what is wrong if it does not."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
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

Checks = Iterator[tuple[object, str]]


def check_entries(kernel: Kernel) -> Checks:
    """A source exists, defines every entry point in its record, and contains no host code."""
    path = kernel.source_path
    yield (path.is_file(), f"there is no source kernels/{kernel.family}/{kernel.source}.")
    if not path.is_file():
        return
    if kernel.code.compiler == "nvcc":
        yield from _check_cuda(kernel)
    else:
        yield from _check_python(kernel)


def _check_cuda(kernel: Kernel) -> Checks:
    text = text_of(kernel)
    for code in kernel.codes:
        entry = code.code.entry
        defined = re.search(rf'extern "C" __global__[^;{{]*\b{re.escape(entry)}\s*\(', text)
        yield (defined, f'{kernel.source} defines no entry point extern "C" __global__ {entry}(...).')
    host = re.search(r"\bint main\b|<<<", text)
    yield (not host, f"{kernel.source} holds host code ({host[0] if host else ''}); the pipeline launches it.")


def _check_python(kernel: Kernel) -> Checks:
    defined = kernels_of(kernel.source_path)
    for code in kernel.codes:
        name = code.code.function or code.code.entry
        if code.code.compiler == "cute_dsl":  # the DSL numbers its entry points
            name = name.removesuffix("_0")
        yield (name in defined, f"{kernel.source} defines no kernel {name}; it has {', '.join(defined)}.")


def check_includes(kernel: Kernel) -> Checks:
    """A record lists every header under kernels/ that its source includes, since their content enters the build key."""
    if kernel.code.compiler != "nvcc":
        return
    listed = set(kernel.code.headers)
    for header in sorted(listed):
        yield ((paths.KERNELS_DIR / header).is_file(), f"there is no header kernels/{header}.")
    missing = sorted(included(kernel.source_path) - listed)
    yield (
        not missing,
        f"{kernel.source} includes {', '.join(missing)}, which Code.headers lacks: its edits would rebuild nothing.",
    )
    idle = sorted(listed - included(kernel.source_path))
    yield (not idle, f"{kernel.source} does not include {', '.join(idle)} of Code.headers.")


TILE = ("bm", "bn", "bk")
"""Constants that every tiled source must define."""


def check_constants(kernel: Kernel) -> Checks:
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
            yield (
                name not in TILE or bool(kernel.run.variants),
                f"{kernel.source} has no constant {name.upper()}, which Code.params gives as {value}.",
            )
        else:
            yield (actual == value, f"Code.params says {name} = {value}; in {kernel.source} it is {actual}.")


def _check_cutile(kernel: Kernel) -> Checks:
    """The constants that a record passes to a function are the function's constant parameters."""
    functions = kernels_of(kernel.source_path)
    for code in kernel.codes:
        name = code.code.function or code.code.entry
        pairs = [pair.split("=") for pair in code.code.defines.get("PARAMETERS", "").split(",") if "=" in pair]
        passed = {key: int(value) for key, value in pairs}
        accepted = set(functions.get(name, ()))
        yield (
            set(passed) == accepted,
            f"{name} of {kernel.source} takes the constants {', '.join(sorted(accepted))}; "
            f"its record gives {', '.join(sorted(passed))}.",
        )
        different = {key: value for key, value in code.code.params.items() if passed.get(key.upper(), value) != value}
        yield (not different, f"Code.params and Code.defines of {name} differ in {', '.join(sorted(different))}.")


GRID = (2**31 - 1, 65535, 65535)
THREADS = 1024
SIZES = (512, 4096)
"""Configured sizes whose launches are checked."""

PERSISTENT = 2 * card.REFERENCE.sms
"""Maximum grid of a persistent kernel: two blocks on each SM."""


def check_launches(kernel: Kernel) -> Checks:
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


def _check_limits(kernel: Kernel, what: str, launch: Launch) -> Checks:
    sizes = all(1 <= blocks <= most for blocks, most in zip(launch.grid, GRID, strict=True))
    yield (sizes, f"the grid {launch.grid} of {what} is beyond {GRID}, or empty.")
    threads = math.prod(launch.block)
    yield (1 <= threads <= THREADS, f"{threads} threads per block ({what}); 1 to {THREADS} can be.")
    cluster = launch.cluster or (1, 1, 1)
    whole = all(blocks % size == 0 for blocks, size in zip(launch.grid, cluster, strict=True))
    yield (whole, f"the grid {launch.grid} of {what} is no multiple of its cluster {cluster}.")


def _check_bounds(kernel: Kernel) -> Checks:
    """The launch bounds of every entry point equal its block size, the largest if that depends on the shape."""
    text = text_of(kernel)
    for code in kernel.codes:
        bound = launch_bounds(text, code.code.entry)
        yield (bound is not None, f"{code.code.entry} has no __launch_bounds__; write its threads per block.")
        threads = value_of(bound, constants(text, code.code.defines)) if bound else None
        blocks = {math.prod(block) for block in code.blocks}
        if threads is not None:
            if max(blocks) < threads and kernel.problem.operation.matrix_product and kernel.takes(LARGE_SHAPE):
                blocks.add(math.prod(code.launch(LARGE_SHAPE).block))
            yield (
                max(blocks) == threads,
                f"{code.code.entry} is compiled for {threads} threads per block and launched with {sorted(blocks)}.",
            )


def _check_cover(kernel: Kernel) -> Checks:
    """The grid has one block per tile of C; a persistent kernel launches one block (or cluster) for a single tile."""
    tiny = Shape(1, 8, 8)
    if kernel.takes(LARGE_SHAPE) and kernel.takes(tiny) and math.prod(kernel.launch(LARGE_SHAPE).grid) <= PERSISTENT:
        small = kernel.launch(tiny)
        yield (
            math.prod(small.grid) == math.prod(small.cluster or (1,)),
            f"its blocks stay on the GPU, and a single tile takes {math.prod(small.grid)} of them instead of one.",
        )
        return
    step = kernel.accepts.multiple_of
    shape = Shape(3 * step.get("m", 43), 5 * step.get("n", 29), step.get("k", 7))
    part = kernel.at(shape)
    rows, columns = (part.code.params.get(name, part.code.params.get("tile")) for name in ("bm", "bn"))
    if not rows or not columns:
        yield (False, "Code.params lacks bm and bn, the tile of C that a block computes.")
        return
    tiles = -(-shape.m // rows) * -(-shape.n // columns)
    grid = kernel.launch(shape).grid
    yield (
        math.prod(grid) == tiles,
        f"C of {shape} has {tiles} tiles of {rows} x {columns}; the launch has a grid of {grid}.",
    )


NUMBERS = ("m", "n", "k", "iterations", "alpha", "beta")
SWIZZLES = (0, 32, 64, 128)


def check_signatures(kernel: Kernel) -> Checks:
    """Arguments of every launch are known, and TMA supports every tensor map."""
    arrays = {*_operands(kernel), *kernel.run.workspace}
    for code in kernel.codes:
        unknown = [argument for argument in code.call.arguments if not _is_known(argument, arrays)]
        yield (
            not unknown,
            f"{code.code.entry} has the argument {', '.join(map(str, unknown))}; known are numbers "
            f"({', '.join(NUMBERS)}), arrays ({', '.join(sorted(arrays))}), map: and array: before an array.",
        )
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


def _check_map(kernel: Kernel, operand: str, tensor_map: TensorMap) -> Checks:
    yield (tensor_map.swizzle in SWIZZLES, f"the swizzle of {operand} is {tensor_map.swizzle}: use {SWIZZLES}.")
    dtypes = _operands(kernel) | {name: buffer.dtype for name, buffer in kernel.run.workspace.items()}
    if operand in dtypes:
        width = tensor_map.box[1] * DTYPES[dtypes[operand]]
        yield (
            not tensor_map.swizzle or width <= tensor_map.swizzle,
            f"a row of {operand}'s box is {width} bytes, wider than its swizzle of {tensor_map.swizzle}.",
        )
    yield (
        all(1 <= length <= 256 for length in tensor_map.box),
        f"the box {tensor_map.box} of {operand} is beyond TMA's 256 elements an axis.",
    )


def check_promises(kernel: Kernel) -> Checks:
    """A record's expectations about machine code are valid regular expressions, each with a reason."""
    yield (
        any(code.promises.expects for code in kernel.codes),
        "it expects nothing of its machine code; add an Expect that shows its idea.",
    )
    for code in kernel.codes:
        for expect in code.promises.expects:
            yield from _check_expect(kernel, expect)
    for refusal in kernel.promises.refusals:
        yield (
            _compiles(refusal.message) and bool(refusal.why),
            f"the refusal '{refusal.message}' is no regular expression, or gives no reason.",
        )


def _check_expect(kernel: Kernel, expect: Expect) -> Checks:
    yield (_compiles(expect.opcode), f"the opcode '{expect.opcode}' is no valid regular expression.")
    yield (expect.why, f"the opcode '{expect.opcode}' is expected without a reason (why).")
    yield (
        expect.least >= 0 and (expect.most is None or expect.most >= expect.least),
        f"the opcode '{expect.opcode}' is expected between {expect.least} and {expect.most} times.",
    )


def _compiles(expression: str) -> bool:
    try:
        re.compile(expression)
    except re.error:
        return False
    return True


def check_shapes(kernel: Kernel) -> Checks:
    """`Accepts` is consistent with the shapes that a kernel takes."""
    usual = [shape for shape in USUAL_SHAPES if kernel.takes(shape)]
    yield (usual, f"it takes none of {', '.join(map(str, USUAL_SHAPES))}; its launch is never looked at.")
    for shape in kernel.promises.gate_shapes:
        yield (kernel.takes(shape), f"it refuses {shape}, one of its own gate_shapes.")
    for shape in usual[:1]:
        for axis, step in kernel.accepts.multiple_of.items():
            odd: Shape = replace(shape, **{axis: getattr(shape, axis) + 1})
            yield (
                step > 1 and not kernel.takes(odd),
                f"{axis.upper()} must be a multiple of {step}, and yet it takes {odd}; leave multiples of 1 out.",
            )
    if kernel.timing.timed_to:
        timed = Shape.cube(kernel.timing.timed_to)
        yield (
            not kernel.problem.operation.matrix_product or kernel.takes(timed),
            f"it is timed to {timed}, which it refuses.",
        )


def check_stories(kernel: Kernel) -> Checks:
    """A record's story refers to existing counters, published systems, baselines and kernels."""
    story, baseline = kernel.story, kernel.timing.baseline
    yield (kernel.rung and kernel.title, "it has no rung or no title.")
    yield (story.idea, "Story.idea is empty; say in one sentence what is new.")
    yield (
        baseline is None or baseline in BASELINES,
        f"there is no baseline '{baseline}'; known are {', '.join(BASELINES)}.",
    )
    unknown = [counter for counter in story.evidence if counter not in METRICS]
    yield (
        not unknown,
        f"Story.evidence names {', '.join(unknown)}, which no stage reads; counters are METRICS of core/names.py.",
    )
    yield (story.article is None or story.article in article_names(), f"there is no article '{story.article}'.")
    if story.published_system:
        systems = {row["system"] for row in published_rows() if row["article"] == story.article}
        yield (
            story.published_system in systems,
            f"numbers.csv of article '{story.article}' has no system '{story.published_system}'.",
        )
    if story.gain_over:
        known = {other.id for name in registry.family_names() for other in registry.kernels(name)}
        yield (
            story.gain_over in known and story.gain_over != kernel.id,
            f"Story.gain_over names '{story.gain_over}', which is no other kernel.",
        )


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


_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}


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


def value_of(expression: str, named: Mapping[str, str], depth: int = 0) -> int | None:
    """The value of an expression, or None if it is more than integer arithmetic on constants."""
    if depth > 20:  # a constant defined in terms of itself
        return None
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except SyntaxError:
        return None
    return _value(tree, named, depth)


def _value(node: ast.expr, named: Mapping[str, str], depth: int) -> int | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name) and node.id in named:
        return value_of(named[node.id], named, depth + 1)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _value(node.left, named, depth), _value(node.right, named, depth)
        if left is None or right is None or (right == 0 and isinstance(node.op, ast.Div | ast.Mod)):
            return None
        return _OPERATORS[type(node.op)](left, right)
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
