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


# What claims are judged by.
JUDGED_BY = [
    *relative(path for name in articles.article_names() for path in articles.files(name)),
    *(path for family in FAMILIES if Path(path := checked_out(f"kernels/{family}/calculations.py")).is_file()),
    checked_out("kernels/chips.yaml"),
    checked_out("workflow/schemas/chips.schema.yaml"),
    *(checked_out(f"workflow/schemas/{name}.schema.yaml") for name in ("article", "map", "claims", "verdicts")),
]


PLACES = (experiments.path_of, paper_figures.path_of)


def declared(families):
    """The Python files that declare experiments and figures of families, and the articles' figures of them."""
    paths = [path for family in families for place in PLACES if (path := place(family)).is_file()]
    return [*paths, *tables.files(families)]


def recording(family):
    """The committed files that a family's recorded rows are made from and held against."""
    rows = PLAN.recorded(family, *FILES, GATES, SANITIZERS, MANIFEST)
    return [*rows, *PLAN.recorded(CEILINGS, SUMMARY, RUN), *RECORDING_RULES]


def sources_of(kernels):
    """The sources and headers that some kernels are compiled from."""
    return relative(dict.fromkeys(path for kernel in kernels for path in (kernel.source_path, *kernel.header_paths)))


def recipe_of(env):
    """What an image is made by, beside Debian's packages; images of those alone have no lock of their own."""
    lock = checked_out(f"envs/requirements/{env}.txt")
    return [checked_out(f"docker/{env}.Dockerfile"), checked_out("docker/apt-locked"), *filter(os.path.isfile, [lock])]


def recorded_takes(family):
    """A family's committed takes of the regimes, and what they are held against."""
    return [*PLAN.recorded_takes(family), *PLAN.recorded(CEILINGS, SUMMARY, RUN), *RECORDING_RULES]


def recorded_experiments(family, names):
    """The committed rows of some experiments of a family, their schema, and the sources that they must be of."""
    rows = [f"experiments/{name}.{suffix}" for name in names for suffix in ("csv", "json")]
    schema = checked_out("workflow/schemas/experiment.schema.yaml")
    return [*PLAN.recorded(family, *rows, MANIFEST), schema, *relative(experiment_sources(family, names))]


def drawn_from(family):
    """The committed files that figures of a family show: its own, and those of the articles that are about it."""
    folder = Path(checked_out(f"kernels/{family}"))
    own = [*folder.glob("tuned/*/*.csv"), *folder.glob("layouts/*.csv")]
    chips = [checked_out("kernels/chips.yaml"), checked_out("workflow/schemas/chips.schema.yaml")]
    printed = relative(path for name in articles.about(family) for path in articles.files(name))
    return [*chips, *sorted(map(str, own)), *printed]


def shown_in_report():
    """The committed files that the pages show, or are made with."""
    template = (path for path in Path(checked_out("reports/template")).rglob("*") if path.is_file())
    files = sorted([*template, *Path(checked_out(f"reports/recorded/{REFERENCE}")).rglob("*.csv")])
    findings = [checked_out(f"kernels/{family}/findings.md") for family in FAMILIES]
    schemas = [f"workflow/schemas/{name}.schema.yaml" for name in ("verdicts", "citation", "sanitizers")]
    read = relative(path for name in articles.article_names() for path in articles.files(name))
    declarations = ["kernels/references.yaml", "kernels/mechanisms.yaml", "CITATION.cff", *schemas]
    sanitizers = [path for family in FAMILIES for path in PLAN.recorded(family, SANITIZERS, MANIFEST)]
    found = [*map(str, files), *filter(os.path.isfile, findings), *map(checked_out, declarations), *sanitizers, *read]
    return list(dict.fromkeys([*found, *relative(kernel.source_path for kernel in KERNELS.values())]))


def measured_from(wildcards):
    """What a family's rows are made from."""
    inputs = {"records": PLAN.builds_in([wildcards.family])}
    if not PLAN.live:
        return inputs | {"recording": ancient(recording(wildcards.family))}
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
    inputs = {"sources": ancient(relative(experiment_sources(source.family, source.names)))}
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


def read_only(own):
    """What containers see of a file that they cannot write: its folder, or its files where jobs run in that folder."""
    folder = own.path.parent
    return own.all_files if Path.cwd().resolve().is_relative_to(folder) else [folder]
