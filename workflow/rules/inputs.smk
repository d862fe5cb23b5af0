# What the rules of each stage read: functions of wildcards, apart from the rules as Snakemake's lint asks.
import shlex
from dataclasses import dataclass

# The gates of all operations: a kernel's own counts by its protocol.
JUDGES = ["gates.operations"]


RECORDING_SCHEMAS = [checked_out(f"workflow/schemas/{name}.schema.yaml") for name in ("run", "gates", "manifest")]


def measured_from(wildcards):
    """What a family's rows are made from."""
    inputs = {"records": PLAN.builds_in([wildcards.family])}
    if not PLAN.live:
        recording = PLAN.recorded(wildcards.family, *FILES, GATES, MANIFEST)
        ceilings = PLAN.recorded(CEILINGS, SUMMARY, RUN)
        return inputs | {"recording": recording, "ceilings": ceilings, "schemas": RECORDING_SCHEMAS}
    binaries = PLAN.builds_in([wildcards.family], "fatbin")
    return inputs | {"binaries": binaries, "gates": PLAN.gates_in([wildcards.family]), "config": "results/config.json"}


ON_CPU = "|".join(sorted(each.name for every in PLAN.experiments.values() for each in every if each.device == "cpu"))


@dataclass(frozen=True)
class Source:
    """One source of an experiment's rows; `names` is a regular expression matching the experiments it serves."""

    name: str
    names: str
    image: str
    stage: str
    message: str
    gpu: int = 0
    threads: int = 1


# PyTorch's image is several GB: only the experiments that call PyTorch run in it.
WITH_PYTORCH = PLAN.experiments_with_pytorch
OTHERS = {each.name for every in PLAN.experiments.values() for each in every} - WITH_PYTORCH
LIVE = Source("experiment", "|".join(sorted(OTHERS)) or "-", "measure", "run", "on the GPU", gpu=1)
PYTORCH = Source(
    "experiment_with_pytorch", "|".join(sorted(WITH_PYTORCH)) or "-", "torch", "run", "on the GPU, with PyTorch", gpu=1
)
# All cores: a concurrent job would disturb the measurement.
CPU = Source(
    "experiment_on_cpu", ON_CPU or "-", "torchcpu", "run", "on the CPU", threads=workflow.resource_settings.cores or 1
)


def experiment_kernels(family, names):
    """The kernels that some experiments of a family run."""
    return list({kernel.id: kernel for name in names for kernel in PLAN.experiment_kernels(family, name)}.values())


def experiment_sources(family, names):
    """The files that some experiments of a family are made of, apart from its declaration."""
    paths = (path for name in names for path in experiments.source_paths(experiments.experiment(family, name)))
    return list(dict.fromkeys(paths))


# What is taken from recordings, by family.
RECORDED_EXPERIMENTS = {
    family: names
    for family, declared in PLAN.experiments.items()
    if (names := [each.name for each in declared if not (PLAN.runs_on_cpu_here and each.device == "cpu")])
    and not PLAN.live
}


def experiment_inputs(source):
    """The files that an experiment's rows depend on, apart from its declaration: sources, builds and gates."""

    def inputs(wildcards):
        family, name = wildcards.family, wildcards.experiment
        sources = {"sources": relative(experiments.source_paths(experiments.experiment(family, name)))}
        builds = [path for kernel in PLAN.experiment_kernels(family, name) for path in PLAN.builds_of(kernel)]
        if source is CPU:
            return sources
        kernels = PLAN.experiment_kernels(family, name)
        return sources | {
            "records": builds,
            "binaries": [path for kernel in kernels for path in PLAN.builds_of(kernel, "fatbin")],
            "gates": [f"results/gates/{kernel.id}.json" for kernel in kernels],
        }

    return inputs


def experiment_command(source):
    def command(wildcards):
        settings = PLAN.experiment_settings(wildcards.family, wildcards.experiment)
        common = f"--settings {shlex.quote(settings)} --journal results/sweep/experiments/{wildcards.family}"
        if source is CPU:
            return common
        toolkits = ",".join(config["sweep"]["toolkits"])
        return f"{common} --toolkits {toolkits} --build results/build --gates results/gates"

    return command


def experiment_code(wildcards):
    """A hash of an experiment's declaration, and of the code that it and its sources reach in the library."""
    declared = experiments.experiment(wildcards.family, wildcards.experiment)
    files = [experiments.path_of(wildcards.family), *experiments.source_paths(declared)]
    return [file_hash(path) for path in files if path.suffix == ".py"]
