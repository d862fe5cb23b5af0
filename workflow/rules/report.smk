# The report: a folder of pages that opens from disk.
from gemmrepro.core.names import REPORT_FOLDERS, REPORT_PAGES


report: "../report/workflow.rst"


rule report:
    input:
        verdicts="results/verdicts.json",
        config="results/config.json",
        gates=PLAN.gates_in(FAMILIES),
        builds=PLAN.builds_in(FAMILIES),
        sass=PLAN.builds_in(FAMILIES, "sass"),
        measurements=PLAN.measurements(FAMILIES),
        regimes=PLAN.regimes(),
        experiments=PLAN.experiment_files(FAMILIES),
        figures=rules.figures.input,
        shown=ancient(shown_in_report()),
        others=expand("results/gpus/{gpu}/verdicts.json", gpu=PLAN.other_gpus),
        own=OWN_RESULTS,
        own_figure=OWN_FIGURE,
        locks=expand("resources/images/{env}.lock.json", env=DEFAULT_IMAGES) if CONTAINERS else [],
        image=in_image("report"),
    output:
        report(
            "reports/index.html",
            caption="../report/paper.rst",
            category="Paper",
        ),
        pages=expand("reports/{page}.html", page=REPORT_PAGES[1:]),
        folders=[directory(f"reports/{folder}") for folder in REPORT_FOLDERS],
        own=["reports/own.html"] if OWN_RESULTS else [],
    log:
        "results/logs/report.log",
    container:
        image("report")
    params:
        registered=read_of_families("told", FAMILIES),
        shown=contents(shown_in_report(), whole=True),
        code=code("paper.page", *declared(FAMILIES)),
        gpus=[f"results/gpus/{gpu}" for gpu in PLAN.other_gpus],
        recorded=lambda wildcards: PLAN.recordings,
    message:
        "Writing {output[0]} and the pages beside it"
    shell:
        "python3 -m gemmrepro report --verdicts {input.verdicts} --measure results/measure --gates results/gates"
        " --build results/build --figures results/figures --images resources/images --config {input.config}"
        " --experiments results/experiments --regimes results/regimes --gpus {params.gpus}"
        " --recorded {params.recorded} --own {input.own} --out reports 2>&1 | tee {log}"


rule report_zip:
    input:
        rules.report.output,
    output:
        "reports/report.zip",
    log:
        "results/logs/report_zip.log",
    container:
        image("report")
    params:
        code=code("paper.bundle"),
    message:
        "Packing the report into {output}"
    shell:
        "python3 -m gemmrepro zip --report reports --out {output} 2>&1 | tee {log}"
