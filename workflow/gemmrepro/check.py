"""Check kernel families against the contract, without a GPU or a CUDA toolkit.

It finds what no compiler or linter sees: constants, headers and launches of a record that differ from its source, and
names that no other table has.
"""

import ast
import math
import re
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from gemmrepro import experiments, registry
from gemmrepro.core import paths
from gemmrepro.core.names import METRICS
from gemmrepro.core.trees import without_comments
from gemmrepro.errors import UserError
from gemmrepro.experiments import Experiment, paper_figures
from gemmrepro.gpu.baselines import BASELINES
from gemmrepro.judge.metrics import calculated
from gemmrepro.judge.published import published_rows
from gemmrepro.operations import Shape
from gemmrepro.registry import LARGE_SHAPE, USUAL_SHAPES, Kernel, card, ladders
from gemmrepro.registry.articles import article_names

TILE = ("bm", "bn", "bk")
"""Constants that every tiled source must define."""

PERSISTENT = 2 * card.REFERENCE.sms
"""Maximum grid of a persistent kernel: two blocks on each SM."""

NUMBERS = ("m", "n", "k", "iterations", "alpha", "beta")

DECLARATIONS = ("family.py", "figures.py", experiments.FILE, calculated.FILE)
"""Python files of a family that are not sources."""


def main(options: Namespace) -> int:
    """Check the named families, by default all; 1 if there is a problem."""
    wrong = 0
    for name in options.family or registry.family_names():
        if problems := check_family(name):
            wrong = 1
            print(f"{name}: {len(problems)} problems", *problems, sep="\n  ")
        else:
            print(f"{name}: {len(registry.kernels(name))} kernels, all as the contract says")
    return wrong


def check_family(name: str) -> list[str]:
    """Faults of the family called `name`, each after the kernel or file. Raises UserError if there is none."""
    if name not in registry.family_names():
        registry.family(name)  # raises, naming the known families
    where = f"kernels/{name}/family.py"
    try:
        kernels = registry.kernels(name)
    except UserError as error:
        return [f"{where}: {error}"]
    except Exception as error:  # an import can raise anything
        return [f"{where}: importing it fails with {type(error).__name__}: {error}"]
    if not kernels:
        return [f"{where}: KERNELS is empty; add a record."]
    if wrong := list(check_identities(name)):  # all other checks depend on them
        return wrong
    of_kernels = [f"{kernel.id}: {what}" for kernel in kernels for check in OF_A_KERNEL for what in check(kernel)]
    return [*of_kernels, *check_labels(name), *check_files(name), *check_experiments(name)]


def check_identities(family: str) -> Iterator[str]:
    """Ids and the family's own record are consistent."""
    record, kernels = registry.family(family), registry.kernels(family)
    where = f"kernels/{family}/family.py"
    if record.name != family:
        yield f"{where}: FAMILY.name is '{record.name}'; the folder is '{family}'."
    drawn = paper_figures.of_rungs(family)
    if unknown := [name for name in record.figures if name not in drawn]:
        yield f"{where}: FAMILY.figures names {', '.join(unknown)}; known are {', '.join(drawn)}."
    for kernel_id, count in Counter(kernel.id for kernel in kernels).items():
        if not kernel_id.startswith(f"{family}."):
            yield f"{kernel_id}: its id must begin with '{family}.', after the folder that it is in."
        if count != 1:
            yield f"{kernel_id}: {count} records have this id; rename all but one."


def check_labels(family: str) -> Iterator[str]:
    """No two rungs have one label in figures."""
    labels = {kernel.id: ladders.label(kernel) for kernel in (*ladders.apart(family), *ladders.steps(family))}
    for (first, name), (second, next_name) in pairwise(sorted(labels.items(), key=lambda item: item[1])):
        if name == next_name:
            yield f"{second}: its label, '{next_name}', is that of {first} too; change its name or rung."


def check_files(family: str) -> Iterator[str]:
    """Every source and header in a family's folder belongs to a record or an experiment."""
    kernels, folder = registry.kernels(family), paths.KERNELS_DIR / family
    listed = {kernel.source for kernel in kernels} | {*DECLARATIONS}
    headers = {header for kernel in kernels for header in (*kernel.code.headers, *included(kernel.source_path))}
    listed |= {header.removeprefix(f"{family}/") for header in headers}
    try:
        listed |= {source for experiment in experiments.declared(family) for source in experiment.sources}
    except Exception:  # which the check of experiments reports
        return
    for path in sorted(folder.iterdir()):
        if path.suffix in (".cu", ".cuh", ".py") and path.name not in listed:
            where = f"kernels/{family}/{path.name}"
            yield f"{where}: no record and no experiment names it; add a Kernel to family.py, or remove the file."


def check_experiments(family: str) -> Iterator[str]:
    """Experiments are complete, and refer to existing kernels."""
    where = f"kernels/{family}/experiments.py"
    try:
        declared = experiments.declared(family) if experiments.path_of(family).is_file() else ()
    except UserError as error:
        yield f"{where}: {error}"
        return
    except Exception as error:  # an import can raise anything
        yield f"{where}: importing it fails with {type(error).__name__}: {error}"
        return
    for experiment in declared:
        yield from (f"{where}, {experiment.name}: {what}" for what in _check_experiment(experiment))


def _check_experiment(experiment: Experiment) -> Iterator[str]:
    if unknown := [kernel_id for kernel_id in experiment.kernels if kernel_id not in _every_id()]:
        yield f"it runs {', '.join(unknown)}, which no family has."
    if not experiment.points(experiment.parameters):
        yield "its parameters give no point to measure."


def _every_id() -> set[str]:
    return {kernel.id for kernel in registry.kernels()}


def check_source(kernel: Kernel) -> Iterator[str]:
    """A source exists, and its record lists every header under kernels/ that it includes: they enter the build key."""
    if not kernel.source_path.is_file():
        yield f"there is no source kernels/{kernel.family}/{kernel.source}."
        return
    listed, needed = set(kernel.code.headers), included(kernel.source_path)
    for header in sorted(listed):
        if not (paths.KERNELS_DIR / header).is_file():
            yield f"there is no header kernels/{header}."
    if missing := sorted(needed - listed):
        lacks = f"{', '.join(missing)}, which Code.headers lacks"
        yield f"{kernel.source} includes {lacks}: its edits would rebuild nothing."
    if idle := sorted(listed - needed):
        yield f"{kernel.source} does not include {', '.join(idle)} of Code.headers."


def check_constants(kernel: Kernel) -> Iterator[str]:
    """Constants in a record equal those in its source; the report and the launches use the record's."""
    if not kernel.source_path.is_file():
        return
    if kernel.code.compiler == "cutile":  # whose constants are the record's; its compiler checks their names
        for code in kernel.codes:
            passed = dict(re.findall(r"(\w+)=(\d+)", code.code.defines.get("PARAMETERS", "")))
            for name, value in code.code.params.items():
                if int(passed.get(name.upper(), value)) != value:
                    yield f"Code.params and Code.defines of {code.code.entry} differ in {name}."
        return
    if kernel.code.compiler == "cute_dsl":
        defined: dict[str, int | None] = {**_module_constants(kernel.source_path)}
    else:
        named = constants(text_of(kernel), kernel.code.defines)
        defined = {name: value_of(expression, named) for name, expression in named.items()}
    for name, value in kernel.code.params.items():
        actual = defined.get(name.upper(), defined.get("TILE") if name in TILE else None)
        if actual is None:
            if name in TILE and not kernel.run.variants:
                yield f"{kernel.source} has no constant {name.upper()}, which Code.params gives as {value}."
        elif actual != value:
            yield f"Code.params says {name} = {value}; in {kernel.source} it is {actual}."


def check_bounds(kernel: Kernel) -> Iterator[str]:
    """The launch bounds of every entry point equal its block size, the largest if that depends on the shape."""
    if kernel.code.compiler != "nvcc" or not kernel.source_path.is_file():
        return
    text = text_of(kernel)
    for code in kernel.codes:
        entry, bound = code.code.entry, launch_bounds(text, code.code.entry)
        if bound is None:
            yield f"{entry} has no __launch_bounds__; write its threads per block."
        threads = value_of(bound, constants(text, code.code.defines)) if bound else None
        blocks = {math.prod(block) for block in code.blocks}
        if threads is not None:
            if max(blocks) < threads and kernel.problem.operation.matrix_product and kernel.takes(LARGE_SHAPE):
                blocks.add(math.prod(code.launch(LARGE_SHAPE).block))
            if max(blocks) != threads:
                yield f"{entry} is compiled for {threads} threads per block and launched with {sorted(blocks)}."


def check_cover(kernel: Kernel) -> Iterator[str]:
    """The grid has one block per tile of C; a persistent kernel launches one block (or cluster) for a single tile."""
    if not kernel.problem.operation.matrix_product or kernel.run.steps:
        return
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
    tiles, grid = -(-shape.m // rows) * -(-shape.n // columns), kernel.launch(shape).grid
    if math.prod(grid) != tiles:
        yield f"C of {shape} has {tiles} tiles of {rows} x {columns}; the launch has a grid of {grid}."


def check_arguments(kernel: Kernel) -> Iterator[str]:
    """Arguments of every launch are numbers, operands or arrays of the workspace."""
    arrays = {each.name for each in kernel.problem.operation.inputs} | {"c", *kernel.run.workspace}
    for code in kernel.codes:
        for argument in map(str, code.call.arguments):
            if argument in NUMBERS or re.fullmatch(r"-?\d+|[mnk]=\d+", argument):
                continue
            if re.sub(r"^(map|array):", "", argument) not in arrays:
                named = f"numbers ({', '.join(NUMBERS)}), arrays ({', '.join(sorted(arrays))})"
                known = f"{named}, map: and array: before an array"
                yield f"{code.code.entry} has the argument {argument}; known are {known}."


def check_promises(kernel: Kernel) -> Iterator[str]:
    """A record's expectations about machine code are valid regular expressions, each with a reason."""
    expects = [expect for code in kernel.codes for expect in code.promises.expects]
    if not expects:
        yield "it expects nothing of its machine code; add an Expect that shows its idea."
    for expect in expects:
        if expect.most is not None and expect.most < expect.least:
            yield f"the opcode '{expect.opcode}' is expected between {expect.least} and {expect.most} times."
    stated = [(expect.opcode, expect.why) for expect in expects]
    for pattern, why in [*stated, *((refusal.message, refusal.why) for refusal in kernel.promises.refusals)]:
        try:
            re.compile(pattern)
        except re.error as error:
            yield f"'{pattern}' is no valid regular expression: {error}."
        if not why:
            yield f"'{pattern}' is expected without a reason (why)."


def check_shapes(kernel: Kernel) -> Iterator[str]:
    """`Accepts` is consistent with the shapes that a kernel takes."""
    usual = [shape for shape in USUAL_SHAPES if kernel.takes(shape)]
    if not usual:
        yield f"it takes none of {', '.join(map(str, USUAL_SHAPES))}; its launch is never looked at."
    timed = [Shape.cube(kernel.timing.timed_to)] if kernel.timing.timed_to else []
    own = (*kernel.promises.gate_shapes, *(timed if kernel.problem.operation.matrix_product else []))
    yield from (
        f"it refuses {shape}, one of its own gate_shapes or timed_to." for shape in own if not kernel.takes(shape)
    )
    for axis, step in kernel.accepts.multiple_of.items() if usual else ():
        odd: Shape = replace(usual[0], **{axis: getattr(usual[0], axis) + 1})
        if kernel.takes(odd):
            yield f"{axis.upper()} must be a multiple of {step}, and yet it takes {odd}; leave multiples of 1 out."


def check_stories(kernel: Kernel) -> Iterator[str]:
    """A record's story refers to existing counters, published systems, baselines and kernels."""
    story, baseline = kernel.story, kernel.timing.baseline
    if not kernel.rung or not kernel.title or not story.idea:
        yield "its rung, title or Story.idea is empty; say in one sentence what is new."
    if baseline is not None and baseline not in BASELINES:
        yield f"there is no baseline '{baseline}'; known are {', '.join(BASELINES)}."
    if unknown := [counter for counter in story.evidence if counter not in METRICS]:
        yield f"Story.evidence names {', '.join(unknown)}, which no stage reads; counters are METRICS of core/names.py."
    if story.article is not None and story.article not in article_names():
        yield f"there is no article '{story.article}'."
    if story.published_system and not any(
        (row["article"], row["system"]) == (story.article, story.published_system) for row in published_rows()
    ):
        yield f"numbers.csv of article '{story.article}' has no system '{story.published_system}'."
    if story.gain_over and story.gain_over not in _every_id() - {kernel.id}:
        yield f"Story.gain_over names '{story.gain_over}', which is no other kernel."


OF_A_KERNEL = (
    *(check_source, check_constants, check_bounds, check_cover, check_arguments),
    *(check_promises, check_shapes, check_stories),
)


def text_of(kernel: Kernel) -> str:
    """The text of a kernel's source and of its family's own headers, without comments."""
    own = [path for path in kernel.header_paths if path.parent == kernel.source_path.parent]
    texts = [path.read_text() for path in (kernel.source_path, *own) if path.is_file()]
    return without_comments("\n".join(texts))


def included(path: Path) -> set[str]:
    """Headers under kernels/ that a CUDA source includes, directly or indirectly; paths are relative to kernels/."""
    reached: set[str] = set()
    pending = [path]
    while pending:
        file = pending.pop()
        text = file.read_text() if file.is_file() and file.suffix in (".cu", ".cuh") else ""
        fresh = {*re.findall(r'^\s*#include "([^"]+)"', text, re.M)} - reached
        reached |= fresh
        pending += [paths.KERNELS_DIR / name for name in fresh]
    return reached


def launch_bounds(text: str, entry: str) -> str | None:
    """The first argument of an entry point's ``__launch_bounds__``, as text; None if it has none."""
    match = re.search(rf"__launch_bounds__\(([^,()]*(?:\([^()]*\)[^,()]*)*)[^;{{]*?\)\s*{entry}\s*\(", text)
    return match[1] if match else None


def constants(text: str, defines: Mapping[str, str]) -> dict[str, str]:
    """Integer constants of a source and their expressions; the record's `defines` override the source's macros."""
    whole = text.replace("\\\n", " ")
    macros = {**dict(re.findall(r"^[ \t]*#define (\w+) ([^\n]+)$", whole, re.M)), **defines}
    named = {name: value.strip() for name, value in macros.items() if re.fullmatch(r"[\w\s()*/%+<>-]+", value)}
    for declaration in re.findall(r"\bconstexpr (?:int|unsigned|long long|size_t) ([^;]+);", text):
        declaration = macros.get(declaration.strip(), declaration)  # constexpr int PARAMETERS;
        # Commas inside parentheses, two deep at most, do not separate.
        for name, value in re.findall(r"(\w+)\s*=\s*((?:[^,()]|\((?:[^()]|\([^()]*\))*\))+)", declaration):
            named.setdefault(name, value.strip())
    return named


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


def _module_constants(path: Path) -> dict[str, int]:
    integers: dict[str, int] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, int):
            integers |= {target.id: node.value.value for target in node.targets if isinstance(target, ast.Name)}
    return integers
