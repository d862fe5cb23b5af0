# What every stage shares: the checked configuration, the plan for this machine, and small helpers for rules.
import atexit
import gc
import json
import os
import re
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.settings.types import DeploymentMethod
from snakemake.utils import min_version

min_version("9.0")

# What is loaded and parsed here stays to the end: Python's collector of cycles does not walk through it again and again.
gc.disable()

# Also where another workflow uses this one as a module: `workflow.basedir` would be the other's.
if not isinstance(workflow.current_basedir, os.PathLike):
    raise WorkflowError(
        "gemmrepro needs its whole checkout: clone the repository, and name the Snakefile in the clone as the"
        " module's snakefile."
    )
LIBRARY = str(Path(workflow.current_basedir).parent)
sys.path.insert(0, LIBRARY)

from gemmrepro import experiments, registry
from gemmrepro.__main__ import declared as declared_options
from gemmrepro.build.cache import CACHE, OF_COMPILER
from gemmrepro.core import dependencies, machine, trees
from gemmrepro.core.names import REFERENCE, TOOLKITS
from gemmrepro.errors import UserError
from gemmrepro.experiments import paper_figures, tables
from gemmrepro.gates.operations import protocol
from gemmrepro.gpu.device import drop_switches
from gemmrepro.host import command_line, places, runs
from gemmrepro.host.config import check as check_configuration
from gemmrepro.host.containers import (
    build_cache,
    container_environment,
    foreign,
    in_containers,
    use_apptainer,
)
from gemmrepro.host.recipes import Sources
from gemmrepro.host.plan import Plan, checked_out, contents, relative
from gemmrepro.measure.recording import CEILINGS, FILES, GATES, MANIFEST, RUN, SANITIZERS, SUMMARY
from gemmrepro.measure.regimes import FILES as REGIME_FILES
from gemmrepro.registry import articles, keys


def stop(error):
    """End the run with one sentence: Snakemake would add the place in this file, which does not help the user."""
    print(f"gemmrepro: {error}", file=sys.stderr)
    sys.exit(1)


OWN = Path(workflow.main_snakefile).resolve().parent == Path(LIBRARY).parent
try:
    places.check_encoding()
    if OWN and workflow.is_main_process:
        places.check_disks()
    RUN = runs.Run() if OWN and workflow.is_main_process else None
except UserError as error:
    stop(error)

CONTAINERS = DeploymentMethod.APPTAINER in workflow.deployment_settings.deployment_method

# User errors end here, before any job starts.
try:
    if workflow.is_main_process and workflow.resource_settings.cores == 0:
        raise UserError("--cores 0 leaves no core to any job; give 1 or more.")
    if CONTAINERS:
        places.check_machine()
    command_line.settle(config, workflow.config_settings.config, workflow.config_settings.overwrite_config)
    # A job, or a run inside another, inherits the outer run's choice of constants.
    os.environ.pop("GEMMREPRO_TUNED", None)
    # Snakemake lists --configfile's files before the workflow's own, which they override.
    files = [*workflow.configfiles[-1:], *workflow.configfiles[:-1]] if OWN else []
    check_configuration(config, files=files, given=workflow.config_settings.config)
    BUILD_CACHE = build_cache(config["build_cache"], os.environ | container_environment(os.environ))
    places.check_paths(CONTAINERS, bound=[Path(BUILD_CACHE[CACHE])])
    # The registry reads it, here and in every job.
    os.environ.update(GEMMREPRO_TUNED=config["tuned_gpu"])
    TARGET = places.resolve(config, os.environ, workflow.is_main_process, CONTAINERS)
    ONLY = command_line.only(sys.argv[1:], os.environ, workflow.is_main_process)
    for name in sorted(ONLY):
        registry.kernel(name)
    PLAN = Plan(config, TARGET.measure, TARGET.gpu, ONLY)
    IDLE = PLAN.idle
    FAMILIES = PLAN.families
    KERNELS = PLAN.kernels
    PLAN.experiments
    SOURCES = Sources.read()
    MEMO = dependencies.Memo(Path(".snakemake/gemmrepro.memo"), config["tuned_gpu"])
    if CONTAINERS:
        use_apptainer(os.environ)
except UserError as error:
    stop(error)


def check_targets():
    """End the run where it asks for what no rule makes; for the end of the Snakefile."""
    made = [re.sub(r"\{family\b[^}]*\}", "{family}", str(path)) for rule in workflow.rules for path in rule.output]
    names = [pattern.replace("{family}", family) for pattern in dict.fromkeys(made) for family in FAMILIES]
    try:
        command_line.check_targets(
            sys.argv[1:],
            [*(rule.name for rule in workflow.rules), *dict.fromkeys(names)],
            lambda path: any(rule.is_producer(path) for rule in workflow.rules),
        )
    except UserError as error:
        stop(error)


DEFAULT_IMAGES = [*PLAN.toolkits, "report", *(["torchcpu"] if PLAN.runs_on_cpu_here and not PLAN.live else [])]

# Jobs inherit it, also those that measure without opening a GPU.
drop_switches(os.environ)
if CONTAINERS:
    for name in foreign(os.environ):
        del os.environ[name]
# A bare `snakemake --use-singularity` gets the same environment as one under envs/run.
os.environ.update(
    container_environment(os.environ)
    | {
        "PYTHONPATH": os.pathsep.join(filter(None, [LIBRARY, os.environ.get("PYTHONPATH")])),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
)
try:
    places.check_caches(os.environ)
except UserError as error:
    stop(error)
if CONTAINERS:
    # Images have the locale C alone: in every job bash would warn of the user's. Snakemake itself may lie on the user's
    # PYTHONPATH, which they must not see.
    os.environ.update({"LC_ALL": "C.UTF-8"} | in_containers({"PYTHONPATH": LIBRARY}))
os.environ.update(BUILD_CACHE | {command_line.ONLY: ",".join(sorted(PLAN.only))})
# No image has git: what is measured in one is told its commit.
if workflow.is_main_process and (commit := machine.git_commit()):
    os.environ.update(GEMMREPRO_COMMIT=commit)

# Two jobs on one GPU would disturb each other's timings: each takes a GPU of its own, or waits for one. A cluster's
# profile says how many it has.
if "gpu" not in workflow.global_resources:
    workflow.register_resource("gpu", TARGET.slots)


onstart:
    if RUN:
        RUN.start()
        # Not `onerror`, which Snakemake leaves out where a record of its own does not fit the disk.
        atexit.register(places.say_what_is_full)


onsuccess:
    atexit.unregister(places.say_what_is_full)


# Above any build's.
ON_GPU = 10000


wildcard_constraints:
    toolkit="|".join(TOOLKITS),
    family="|".join(registry.family_names()),
    experiment="[a-z0-9_]+",
    kernel="|".join(kernel.id.replace(".", "[.]") for kernel in registry.kernels()),


def image(env):
    """The path of an image, for `container:`."""
    return f"resources/images/{env}.sif"


def in_image(env):
    """Inputs that make a rule wait for its image, and rerun only when the packages in it change."""

    def inputs(wildcards):
        if not CONTAINERS:
            return []
        name = env.format(**dict(wildcards.items()))
        return [ancient(image(name)), f"resources/images/{name}.lock.json"]

    return inputs


@MEMO
def code(*stages, without=()):
    """A hash of the modules that stages, or Python files of kernels, import: it reruns a rule when they may behave otherwise."""
    start = [stage if isinstance(stage, Path) else f"gemmrepro.{stage}" for stage in stages]
    told = [declared_options(stage) for stage in stages if isinstance(stage, str)]
    modules = dependencies.modules_hash(*start, without=frozenset(f"gemmrepro.{module}" for module in without))
    return trees.digest(f"{modules} {told}")


def build_code(kernels):
    """The code that builds some kernels; the registry's counts by what it says of them."""
    compilers = {kernel.code.compiler for kernel in kernels}
    others = {module for name, modules in OF_COMPILER.items() if name not in compilers for module in modules}
    return code("build.stage", without=["registry", *(module.removeprefix("gemmrepro.") for module in others)])


@MEMO
def protocol_of(operation):
    """The code that judges an operation: that of any kernel that computes it."""
    return protocol(next(kernel for kernel in KERNELS.values() if kernel.compute.op == operation))


@MEMO
def read_of(what, name):
    """What a stage reads of a kernel (`compiled`, `judged`) or a family (`run`, `drawn`, `told`); see registry.keys."""
    return getattr(keys, what)(registry.kernel(name) if "." in name else name)


def read_of_families(what, families):
    """The same of some families, and what their kernels run."""
    return [read_of(part, family) for family in families for part in dict.fromkeys([what, "run"])]


def recorded_on(gpu):
    """Every committed file of one GPU's recordings."""
    return sorted(str(path) for path in Path(PLAN.recordings).parent.joinpath(gpu).rglob("*") if path.is_file())


def launched(kernels):
    """What experiments give the GPU beside the binaries of some kernels."""
    return launches(*(kernel.id for kernel in kernels))


@MEMO
def launches(*names):
    runs = [keys.launched(kernel, keys.usual_shapes(kernel)) for kernel in map(registry.kernel, names)]
    return trees.digest(json.dumps(runs, sort_keys=True))


contents_of_sources = MEMO(contents)
"""Of files that `MEMO` reads: sources of kernels and experiments."""


def kernel_of(wildcards):
    return registry.kernel(wildcards.kernel)


def candidates_of(wildcards):
    """Every kernel that a tunable may become."""
    tunable = registry.tunable(wildcards.tunable)
    return [tunable.make(params) for params in tunable.candidates()]
