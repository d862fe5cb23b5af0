# Declared measurements that are not sweeps. They run on the GPU where there is one, and are taken from the recordings
# otherwise; those that need no GPU run on the CPU in the default run too, unless recordings are asked for.
from dataclasses import dataclass

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
            files = (f"experiments/{name}.{suffix}" for suffix in ("csv", "json"))
            schema = "workflow/schemas/experiment.schema.yaml"
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


for source in [LIVE] if PLAN.live else [CPU, RECORDED] if PLAN.runs_on_cpu_here else [RECORDED]:

    rule:
        name:
            source.name
        input:
            unpack(experiment_inputs(source)),
            image=in_image(source.image),
        output:
            report(
                "results/experiments/{family}/{experiment}.csv",
                caption="../report/experiments.rst",
                category="Experiments",
                subcategory="{family}",
            ),
            "results/experiments/{family}/{experiment}.json",
        log:
            "results/logs/experiments/{family}/{experiment}.log",
        wildcard_constraints:
            experiment=source.names,
        container:
            image(source.image)
        threads: source.threads
        resources:
            gpu=source.gpu,
        params:
            folder=subpath(output[0], parent=True),
            command=experiment_command(source),
            declared=experiment_code,
            run=lambda wildcards: [
                keys.launched(kernel, keys.usual_shapes(kernel))
                for kernel in PLAN.experiment_kernels(wildcards.family, wildcards.experiment)
            ],
            code=code(f"experiments.{source.stage}"),
            stage=source.stage,
            origin=source.message,
        message:
            "Experiment {wildcards.experiment} of {wildcards.family}, {params.origin}"
        shell:
            "python3 -m gemmrepro.experiments.{params.stage} --family {wildcards.family} --name {wildcards.experiment}"
            " {params.command} --out {params.folder} 2>&1 | tee {log}"


rule experiments:
    input:
        PLAN.experiment_files(FAMILIES),
