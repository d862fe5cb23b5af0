# What every stage shares: the checked configuration, the machine at hand, and helpers that turn the registry into paths.
import json
import os
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.settings.types import DeploymentMethod
from snakemake.utils import min_version

min_version("9.0")

LIBRARY = str(Path(workflow.basedir) / "workflow")
sys.path.insert(0, LIBRARY)

import gemmrepro.config
from gemmrepro import experiments, host, modules, registry
from gemmrepro.host.containers import container_environment, find_apptainer, make_caches
from gemmrepro.errors import UserError


def stop(error):
    """Ends the run with the error's one sentence instead of a traceback."""
    raise WorkflowError(str(error))


CONTAINERS = DeploymentMethod.APPTAINER in workflow.deployment_settings.deployment_method

# The user's mistakes end here, before any job starts.
try:
    gemmrepro.config.check(config)
    # The registry reads it, here and in every job.
    os.environ.update(GEMMREPRO_TUNED=config["tuned_gpu"])
    GPU, NO_GPU = host.find_gpu()
    MEASURE = host.resolve_measure(config["measure"], GPU, NO_GPU)
    FAMILIES = config["families"]
    if CONTAINERS:
        find_apptainer()
    KERNELS = {kernel.id: kernel for family in FAMILIES for kernel in registry.kernels(family)}
    EXPERIMENTS = {family: experiments.declared(family) for family in FAMILIES}
except UserError as error:
    stop(error)

TOOLKITS = gemmrepro.config.toolkits(config)
RECORDED = f"reports/recorded/{config['recorded_gpu']}"
# Experiments on the CPU run wherever nobody asked for recordings; with a GPU, in the image that the GPU's run in.
ON_CPU_HERE = config["measure"] == "auto" and any(
    each.device == "cpu" for declared in EXPERIMENTS.values() for each in declared
)
DEFAULT_IMAGES = [*TOOLKITS, "report", *(["torchcpu"] if ON_CPU_HERE and MEASURE == "recorded" else [])]
MEASUREMENTS = ["summary.csv", "samples.parquet", "run.json", "counters.csv"]

# A bare `snakemake --use-singularity` gets the same environment as one under envs/run.
os.environ.update(
    container_environment(os.environ)
    | {
        "PYTHONPATH": os.pathsep.join(filter(None, [LIBRARY, os.environ.get("PYTHONPATH")])),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
)
make_caches(os.environ)

# Two jobs on one GPU would spoil each other's timings.
if "gpu" not in workflow.global_resources:
    workflow.register_resource("gpu", 1)


wildcard_constraints:
    toolkit="cuda12|cuda13",
    family="|".join(registry.family_names()),
    experiment="[a-z0-9_]+",
    kernel="|".join(kernel.id.replace(".", "[.]") for kernel in registry.kernels()),


def image(env):
    """The path of an image; what `container:` names."""
    return f"resources/images/{env}.sif"


def in_image(env):
    """Inputs that make a rule wait for the image it runs in, and rerun only when the packages in it change."""

    def inputs(wildcards):
        if not CONTAINERS:
            return []
        name = env.format(**dict(wildcards.items()))
        return [ancient(image(name)), f"resources/images/{name}.lock.json"]

    return inputs


def code(stage):
    """Our own modules that a stage runs."""
    return list(modules.closure(stage))


def kernel_of(wildcards):
    return registry.kernel(wildcards.kernel)


def candidates_of(wildcards):
    """Every kernel that a tunable may become."""
    tunable = registry.tunable(wildcards.tunable)
    return [tunable.make(params) for params in tunable.candidates()]


def kernels_of(family):
    return [kernel for kernel in KERNELS.values() if kernel.family == family]


def architectures_of(toolkit):
    """The configured architectures, and the GPU's own where the toolkit may know it and the config does not list it."""
    wanted = set(config["build"][toolkit])
    newest = {"cuda12": 90, "cuda13": 121}[toolkit]
    if GPU and GPU.capability <= newest:
        wanted.add(GPU.capability)
    return [str(arch) for arch in sorted(wanted)]


def toolkits_of(kernel):
    """Those that build a kernel: it may name them, and be written for a GPU that they are not configured for."""
    return [
        toolkit
        for toolkit in TOOLKITS
        if toolkit in kernel.toolkits and registry.targets(kernel, architectures_of(toolkit))
    ]


# A kernel written for one architecture is left out where no toolkit is configured for it.
KERNELS = {kernel.id: kernel for kernel in KERNELS.values() if toolkits_of(kernel)}


def builds_of(kernel, suffix="json"):
    """Build records (or binaries) of one kernel, by every toolkit that makes it."""
    return [f"results/build/{toolkit}/{kernel.id}.{suffix}" for toolkit in toolkits_of(kernel)]


def builds_in(families, suffix="json"):
    """The same of every kernel of some families."""
    return [path for family in families for kernel in kernels_of(family) for path in builds_of(kernel, suffix)]


def recorded(family, *names):
    """Committed recordings of a family that exist: a family that nobody measured yet has none."""
    return [path for name in names if Path(path := f"{RECORDED}/{family}/{name}").is_file()]


def architectures(wildcards):
    return ",".join(architectures_of(wildcards.toolkit))


def numeric_evidence(wildcards):
    if MEASURE == "live":
        return f"results/gates/numeric/{wildcards.kernel}.json"
    return recorded(kernel_of(wildcards).family, "gates.json")


def measurements(families):
    return expand("results/measure/{family}/{name}", family=families, name=MEASUREMENTS)


def experiment_files(families):
    """Rows and circumstances of every experiment that some families declare."""
    return [
        f"results/experiments/{family}/{experiment.name}.{suffix}"
        for family in families
        for experiment in EXPERIMENTS[family]
        for suffix in ("csv", "json")
    ]


def experiment_sources(wildcards):
    """The files beside its declaration that say how an experiment measures."""
    declared = experiments.experiment(wildcards.family, wildcards.experiment)
    return [os.path.relpath(path) for path in experiments.source_paths(declared)]


def settings_of(wildcards):
    """How long an experiment measures, where it is not as declared, as JSON."""
    return json.dumps(config.get("experiments", {}).get(wildcards.family, {}).get(wildcards.experiment, {}))


def kernels_in_experiment(wildcards):
    """The kernels that an experiment runs, of the families that are configured."""
    declared = experiments.experiment(wildcards.family, wildcards.experiment)
    return [KERNELS[name] for name in declared.kernels if name in KERNELS]
