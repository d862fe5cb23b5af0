# The report: a folder of pages that opens from disk.
from gemmrepro.core.names import REFERENCE, REPORT_FOLDERS, REPORT_PAGES


report: "../report/workflow.rst"


rule report:
    input:
        verdicts="results/verdicts.json",
        config="results/config.json",
        gates=PLAN.gates_in(FAMILIES),
        builds=PLAN.builds_in(FAMILIES),
        sass=PLAN.builds_in(FAMILIES, "sass"),
        sources=sorted(set(relative(kernel.source_path for kernel in KERNELS.values()))),
        measurements=PLAN.measurements(FAMILIES),
        regimes=PLAN.regimes(),
        experiments=PLAN.experiment_files(FAMILIES),
        figures=rules.figures.input,
        findings=[path for family in FAMILIES if Path(path := checked_out(f"kernels/{family}/findings.md")).is_file()],
        reference=sorted(str(path) for path in Path(checked_out(f"reports/recorded/{REFERENCE}")).rglob("*.csv")),
        template=sorted(str(path) for path in Path(checked_out("reports/template")).rglob("*") if path.is_file()),
        declarations=[
            checked_out(path)
            for path in (
                "kernels/references.yaml",
                "kernels/mechanisms.yaml",
                "CITATION.cff",
            )
        ],
        schemas=[checked_out(f"workflow/schemas/{name}.schema.yaml") for name in ("verdicts", "citation", "sanitizers")],
        sanitizers=[path for family in FAMILIES for path in PLAN.recorded(family, SANITIZERS, MANIFEST)],
        others=expand("results/gpus/{gpu}/verdicts.json", gpu=PLAN.other_gpus),
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
    log:
        "results/logs/report.log",
    container:
        image("report")
    params:
        registered=[read_of("told", family) for family in FAMILIES],
        declared=[file_hash(path) for path in DECLARED],
        code=code("paper.page"),
        gpus=[f"results/gpus/{gpu}" for gpu in PLAN.other_gpus],
        recorded=lambda wildcards: PLAN.recordings,
    message:
        "Writing {output[0]} and the pages beside it"
    shell:
        "python3 -m gemmrepro.paper.page --verdicts {input.verdicts} --measure results/measure --gates results/gates"
        " --build results/build --figures results/figures --images resources/images --config {input.config}"
        " --experiments results/experiments --regimes results/regimes --gpus {params.gpus}"
        " --recorded {params.recorded} --out reports 2>&1 | tee {log}"


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
        code=code("paper.archive"),
    message:
        "Packing the report into {output}"
    shell:
        "python3 -m gemmrepro.paper.archive --report reports --out {output} 2>&1 | tee {log}"
