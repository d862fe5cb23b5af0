# What the rules of each stage read: functions of wildcards, apart from the rules as Snakemake's lint asks.
from dataclasses import dataclass

# Modules that serve one compiler alone: an edit of theirs recompiles only its kernels.
OF_COMPILER = {
    "cute_dsl": ["build.cute_dsl", "build.cute_dsl_trace"],
    "cutile": ["build.cutile", "build.cutile_export"],
}


def build_code(wildcards):
    """The build's code. The registry's counts by what it says of the kernel (`registered`), not by itself."""
    compiler = kernel_of(wildcards).code.compiler
    others = [module for name, modules in OF_COMPILER.items() if name != compiler for module in modules]
    return code("build.stage", without=["registry", *others])


# The gates of all operations: a kernel's own counts by its protocol.
JUDGES = ["gates.operations"]


def numeric_verdict(wildcards):
    """The file that holds the numerical gate's verdict, if there is one."""
    if PLAN.live:
        return f"results/gates/numeric/{wildcards.kernel}.json"
    return PLAN.recorded(kernel_of(wildcards).family, "gates.json")


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


ANY = "[a-z0-9_]+"
LIVE = Source("experiment", ANY, "torch", "run", "on the GPU", gpu=1)
# All cores: a concurrent job would disturb the measurement.
CPU = Source(
    "experiment_on_cpu", ON_CPU or "-", "torchcpu", "run", "on the CPU", threads=workflow.resource_settings.cores or 1
)
RECORDED = Source("experiment", f"(?!(?:{ON_CPU})[.]){ANY}", "report", "recorded", f"from {PLAN.recordings}")
if not (PLAN.runs_on_cpu_here and ON_CPU):
    RECORDED = Source("experiment", ANY, "report", "recorded", f"from {PLAN.recordings}")


def experiment_inputs(source):
    """The files that an experiment's rows depend on, apart from its declaration: sources, builds, gates or recordings."""

    def inputs(wildcards):
        family, name = wildcards.family, wildcards.experiment
        sources = {"sources": relative(experiments.source_paths(experiments.experiment(family, name)))}
        builds = [path for kernel in PLAN.experiment_kernels(family, name) for path in PLAN.builds_of(kernel)]
        if source is CPU:
            return sources
        if source is RECORDED:
            files = [*(f"experiments/{name}.{suffix}" for suffix in ("csv", "json")), MANIFEST]
            schema = checked_out("workflow/schemas/experiment.schema.yaml")
            return sources | {"records": builds, "recording": PLAN.recorded(family, *files), "schema": schema}
        kernels = PLAN.experiment_kernels(family, name)
        return sources | {
            "records": builds,
            "binaries": [path for kernel in kernels for path in PLAN.builds_of(kernel, "fatbin")],
            "gates": [f"results/gates/{kernel.id}.json" for kernel in kernels],
        }

    return inputs


def experiment_command(source):
    def command(wildcards):
        if source is RECORDED:
            return f"--recorded {PLAN.recordings} --build results/build"
        settings = PLAN.experiment_settings(wildcards.family, wildcards.experiment)
        common = f"--settings '{settings}' --journal results/sweep/experiments/{wildcards.family}"
        if source is CPU:
            return common
        toolkits = ",".join(config["sweep"]["toolkits"])
        return f"{common} --toolkits {toolkits} --build results/build --gates results/gates"

    return command


def experiment_code(wildcards):
    """A hash of an experiment's declaration, and of the code that it and its sources reach in the library."""
    declared = experiments.experiment(wildcards.family, wildcards.experiment)
    files = [experiments.path_of(wildcards.family), *experiments.source_paths(declared)]
    return [dependencies.file_hash(path) for path in files if path.suffix == ".py"]
