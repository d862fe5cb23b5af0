# Verdicts on the published claims, and figures, from rows, builds and gates alone.


rule verdicts:
    input:
        judged_by=ancient(JUDGED_BY),
        measurements=PLAN.measurements(FAMILIES),
        regimes=PLAN.regimes(),
        experiments=PLAN.experiment_files(FAMILIES),
        gates=PLAN.gates_in(FAMILIES),
        records=PLAN.builds_in(FAMILIES),
        image=in_image("report"),
    output:
        report(
            "results/verdicts.json",
            caption="../report/verdicts.rst",
            category="Verdicts",
        ),
    log:
        "results/logs/verdicts.log",
    container:
        image("report")
    params:
        families=",".join(FAMILIES),
        registered=read_of_families("drawn", FAMILIES),
        judged_by=contents(JUDGED_BY),
        code=code("judge.judging", *declared(FAMILIES)),
    message:
        "Judging the published claims"
    shell:
        "python3 -m gemmrepro verdicts --measure results/measure --gates results/gates --build results/build"
        " --families {params.families} --experiments results/experiments --regimes results/regimes --out {output}"
        " 2>&1 | tee {log}"


# Another GPU's recordings, judged by themselves, for the page that shows GPUs side by side.
rule verdicts_on:
    input:
        recordings=lambda wildcards: ancient(recorded_on(wildcards.gpu)),
        judged_by=ancient([*JUDGED_BY, *RECORDING_RULES]),
        records=PLAN.builds_in(FAMILIES),
        image=in_image("report"),
    output:
        verdicts="results/gpus/{gpu}/verdicts.json",
        folders=[directory(f"results/gpus/{{gpu}}/{name}") for name in ("measure", "regimes", "experiments", "gates")],
    log:
        "results/logs/gpus/{gpu}.log",
    wildcard_constraints:
        gpu="[a-z0-9-]+",
    container:
        image("report")
    params:
        folder=subpath(output.verdicts, parent=True),
        recordings=lambda wildcards: str(Path(PLAN.recordings).parent / wildcards.gpu),
        recorded=lambda wildcards: contents(recorded_on(wildcards.gpu)),
        families=",".join(FAMILIES),
        experiments=[
            f"{family}={','.join(each.name for each in made)}"
            for family in FAMILIES
            if (made := PLAN.experiments[family])
        ],
        kernels=[f"{kernel.id}={','.join(PLAN.toolkits_of(kernel))}" for kernel in KERNELS.values()],
        registered=read_of_families("drawn", FAMILIES),
        judged=[read_of("judged", kernel.id) for kernel in KERNELS.values()],
        protocol=[protocol_of(op) for op in dict.fromkeys(kernel.compute.op for kernel in KERNELS.values())],
        judged_by=contents([*JUDGED_BY, *RECORDING_RULES]),
        code=[
            code("judge.judging", "recordings.bring", *declared(FAMILIES)),
            code("gates.stage", without=JUDGES),
        ],
    message:
        "Judging the claims on {params.recordings}"
    shell:
        "( set -e;"
        " python3 -m gemmrepro recorded-rows --families {params.families} --recorded {params.recordings}"
        " --build results/build --out {params.folder}/measure --regimes {params.folder}/regimes;"
        " python3 -m gemmrepro recorded-experiments --experiments {params.experiments}"
        " --recorded {params.recordings} --build results/build --out {params.folder}/experiments;"
        " python3 -m gemmrepro gates --kernels {params.kernels} --build results/build"
        " --recorded {params.recordings} --out {params.folder}/gates;"
        " python3 -m gemmrepro verdicts --measure {params.folder}/measure --gates {params.folder}/gates"
        " --build results/build --families {params.families} --experiments {params.folder}/experiments"
        " --regimes {params.folder}/regimes --out {output.verdicts} ) 2>&1 | tee {log}"


for family, names in PLAN.figures().items():

    rule:
        name:
            f"figures_{family}"
        input:
            measurements=PLAN.measurements(sorted({family, "ceilings"} & set(FAMILIES))),
            experiments=PLAN.experiment_files([family]),
            drawn_from=ancient(drawn_from(family)),
            image=in_image("report"),
        output:
            report(
                expand("results/figures/{family}/{figure}.svg", family=family, figure=names),
                caption="../report/figure.rst",
                category="Figures",
                subcategory=family,
            ),
            expand(
                "results/figures/{family}/{figure}.{kind}",
                family=family,
                figure=names,
                kind=("narrow.svg", "csv", "json"),
            ),
        log:
            f"results/logs/figures/{family}.log",
        # Only the report waits for them: they are drawn beside the verdicts and the paper's own figures.
        priority: -1
        container:
            image("report")
        params:
            family=family,
            registered=read_of_families("drawn", sorted({family, "ceilings"} & set(FAMILIES))),
            drawn_from=contents(drawn_from(family)),
            code=code("figures.stage", *declared([family])),
        message:
            "Drawing the figures of {params.family}"
        shell:
            "python3 -m gemmrepro figures --family {params.family} --measure results/measure"
            " --experiments results/experiments --out results/figures/{params.family} 2>&1 | tee {log}"


# The paper's own figures show findings across families, and what was judged.
rule figures_paper:
    input:
        verdicts="results/verdicts.json",
        measurements=PLAN.measurements(FAMILIES),
        experiments=PLAN.experiment_files(FAMILIES),
        regimes=PLAN.regimes(),
        drawn_from=ancient(JUDGED_BY),
        image=in_image("report"),
    output:
        report(
            expand("results/figures/paper/{figure}.svg", figure=paper_figures.drawn(FAMILIES)),
            caption="../report/figure.rst",
            category="Figures",
            subcategory="paper",
        ),
        expand(
            "results/figures/paper/{figure}.{kind}",
            figure=paper_figures.drawn(FAMILIES),
            kind=("narrow.svg", "csv", "json"),
        ),
        f"results/figures/{paper_figures.PICTURE}.png",
    log:
        "results/logs/figures/paper.log",
    container:
        image("report")
    params:
        families=",".join(FAMILIES),
        registered=read_of_families("drawn", FAMILIES),
        drawn_from=contents(JUDGED_BY),
        code=code("figures.stage", *declared(FAMILIES)),
    message:
        "Drawing the paper's own figures"
    shell:
        "python3 -m gemmrepro figures --verdicts {input.verdicts} --measure results/measure"
        " --experiments results/experiments --regimes results/regimes --families {params.families}"
        " --out results/figures/paper"
        " 2>&1 | tee {log}"


rule figures:
    input:
        [f"results/figures/{family}/{figure}.svg" for family, names in PLAN.figures().items() for figure in names],
        [f"results/figures/paper/{figure}.svg" for figure in paper_figures.drawn(FAMILIES)],
    message:
        "The figures are in results/figures"
