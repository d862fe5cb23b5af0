# What the rules of each stage read: functions of wildcards, apart from the rules as Snakemake's lint asks.
import shlex
from dataclasses import dataclass

# The gates of all operations: a kernel's own counts by its protocol.
JUDGES = ["gates.operations"]


# What recordings are held against, beside the code.
RECORDING_RULES = [
    checked_out("kernels/chips.yaml"),
    *(
        checked_out(f"workflow/schemas/{name}.schema.yaml")
        for name in ("chips", "run", "gates", "sanitizers", "manifest")
    ),
]


def measured_from(wildcards):
    """What a family's rows are made from."""
    inputs = {"records": PLAN.builds_in([wildcards.family])}
    if not PLAN.live:
        recording = PLAN.recorded(wildcards.family, *FILES, GATES, SANITIZERS, MANIFEST)
        ceilings = PLAN.recorded(CEILINGS, SUMMARY, RUN)
        return inputs | {"recording": recording, "ceilings": ceilings, "held_against": RECORDING_RULES}
    binaries = PLAN.builds_in([wildcards.family], "fatbin")
    return inputs | {"binaries": binaries, "gates": PLAN.gates_in([wildcards.family]), "config": "results/config.json"}


@dataclass(frozen=True)
class Source:
    """Experiments of a family that one process runs: their names, its image, and what it needs."""

    family: str
    names: list[str]
    image: str
    message: str
    gpu: int = 0
    threads: int = 1


def sources():
    """One process a family, so that imports and the GPU's context are paid once; finished points are in its journal.

    PyTorch's image is several GB: only families with an experiment that calls PyTorch run in it.
    """
    for family in FAMILIES:
        names = PLAN.experiments_here(family)
        if names and PLAN.live:
            env = "torch" if PLAN.experiments_with_pytorch.intersection(names) else "measure"
            yield Source(family, names, env, "on the GPU", gpu=1)
        elif names:
            # All cores: a concurrent job would disturb the measurement.
            yield Source(family, names, "torchcpu", "on the CPU", threads=workflow.resource_settings.cores or 1)


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
    if (
        names := [
            each.name
            for each in declared
            if each.name not in (*PLAN.experiments_here(family), *IDLE.experiments.get(family, ()))
        ]
    )
}


def experiment_inputs(source):
    """The files that experiments' rows depend on, apart from their declarations: sources, builds and gates."""
    inputs = {"sources": relative(experiment_sources(source.family, source.names))}
    if not source.gpu:
        return inputs
    built = [
        f"results/build/{toolkit}/{kernel.id}"
        for kernel in experiment_kernels(source.family, source.names)
        for toolkit in PLAN.timed_with(source.family)
        if toolkit in PLAN.runs(kernel)
    ]
    return inputs | {
        "records": [f"{path}.json" for path in built],
        "binaries": [f"{path}.fatbin" for path in built],
        "gates": [f"results/gates/{kernel.id}.json" for kernel in experiment_kernels(source.family, source.names)],
    }


def experiment_command(source):
    """The options of a process that runs experiments."""
    settings = shlex.quote(PLAN.experiment_settings(source.family, source.names))
    common = f"--settings {settings} --journal results/sweep/experiments/{source.family}"
    if not source.gpu:
        return common
    toolkits = ",".join(PLAN.timed_with(source.family))
    return f"{common} --toolkits {toolkits} --build results/build --gates results/gates"


def experiment_code(family, names):
    """Hashes of a family's declarations of experiments, and of the code that some of them are made of."""
    files = [experiments.path_of(family), *experiment_sources(family, names)]
    return [file_hash(path) for path in files if path.suffix == ".py"]
