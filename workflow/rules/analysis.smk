# Verdicts on the published claims, and the figures, from rows alone.


rule verdicts:
    input:
        claims=[path for family in FAMILIES if Path(path := f"kernels/{family}/claims.yaml").is_file()],
        published="kernels/published.csv",
        schema="workflow/schemas/claims.schema.yaml",
        measurements=measurements(FAMILIES),
        experiments=experiment_files(FAMILIES),
        gates=expand("results/gates/{kernel}.json", kernel=list(KERNELS)),
        records=builds_in(FAMILIES),
        code=code("judge.verdicts"),
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
    message:
        "Judging the published claims"
    shell:
        "python3 -m gemmrepro.judge.verdicts --measure results/measure --gates results/gates --build results/build"
        " --families {params.families} --experiments results/experiments --out {output} 2>&1 | tee {log}"


FIGURES = {family: names for family in FAMILIES if (names := experiments.figure_names(family))}


for family, names in FIGURES.items():

    rule:
        name:
            f"figures_{family}"
        input:
            measurements=measurements(sorted({family, "ceilings"} & set(FAMILIES))),
            experiments=experiment_files([family]),
            published="kernels/published.csv",
            searches=sorted(map(str, Path(f"kernels/{family}/tuned").glob("*/*.csv"))),
            code=code("paper.figures.stage"),
            image=in_image("report"),
        output:
            report(
                expand("results/figures/{family}/{figure}.svg", family=family, figure=names),
                caption="../report/figure.rst",
                category="Figures",
                subcategory=family,
            ),
            expand("results/figures/{family}/{figure}.json", family=family, figure=names),
        log:
            f"results/logs/figures/{family}.log",
        container:
            image("report")
        params:
            family=family,
        message:
            "Drawing the figures of {params.family}"
        shell:
            "python3 -m gemmrepro.paper.figures.stage --family {params.family} --measure results/measure"
            " --experiments results/experiments --out results/figures/{params.family} 2>&1 | tee {log}"


rule figures:
    input:
        [f"results/figures/{family}/{figure}.svg" for family, names in FIGURES.items() for figure in names],
