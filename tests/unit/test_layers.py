"""The library is the pipeline: layers, no circles, no stage that imports another."""

import ast
from graphlib import TopologicalSorter

from gemmrepro.core import dependencies, trees
from gemmrepro.core.paths import ARTICLES_DIR, KERNELS_DIR

LAYERS = (
    *("errors", "stats", "core", "operations", "registry", "operands", "build", "gpu", "timing", "ozaki", "gates"),
    *("measure", "experiments", "tune", "recordings", "judge", "paper", "figures", "host", "check"),
)


def every_module() -> list[str]:
    paths = sorted(dependencies.PACKAGE.rglob("*.py"))
    names = [".".join(path.relative_to(dependencies.PACKAGE.parent).with_suffix("").parts) for path in paths]
    return [name.removesuffix(".__init__") for name in names]


def imports(module: str) -> set[str]:
    """Our modules that a module imports, at any depth of its code."""
    return {imported for imported, _ in dependencies.contents(module).imports.values()}


def test_no_modules_need_each_other() -> None:
    needs = {module: imports(module) - {module} for module in every_module()}
    order = list(TopologicalSorter(needs).static_order())  # raises CycleError, which names the circle
    assert order.index("gemmrepro.errors") < order.index("gemmrepro.judge.judging")


def test_no_module_imports_from_a_layer_above_its_own() -> None:
    def layer(module: str) -> int:
        return LAYERS.index(module.split(".")[1])

    modules = [name for name in every_module() if "." in name and "__main__" not in name]
    upward = [
        f"{module} imports {imported}"
        for module in modules
        for imported in imports(module)
        if "." in imported and layer(imported) > layer(module)
    ]
    assert not upward


def test_no_stage_imports_another_stage() -> None:
    """A stage is a module that the workflow runs: it has a `main`."""

    def is_stage(module: str) -> bool:
        path = dependencies.file_of(module)
        tree = trees.parse(path) if path else ast.Module([], [])
        return any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body)

    stages = {module for module in every_module() if is_stage(module) and "__main__" not in module}
    assert len(stages) > 10
    crossing = {(stage, other) for stage in stages for other in imports(stage) & stages}
    assert not crossing


_NAMES = "errors stats timing operands operations registry experiments ozaki core.dtypes gpu.baselines gpu.l2_window"
FACE = tuple(f"gemmrepro.{name}" for name in f"{_NAMES} gates.bounds build.key build.toolkit".split())


def test_families_import_the_public_face_of_the_library_alone() -> None:
    files = [path for name in ("family", "experiments") for path in KERNELS_DIR.glob(f"*/{name}.py")]
    files += ARTICLES_DIR.glob("*/figures.py")
    nodes = [(path, node) for path in files for node in ast.walk(trees.parse(path)) if isinstance(node, ast.ImportFrom)]
    imported = {(path, f"{node.module}.{alias.name}") for path, node in nodes for alias in node.names}
    private = {(path, name) for path, name in imported if name.startswith("gemmrepro.") and not name.startswith(FACE)}
    assert len(imported) > 50 and not private
