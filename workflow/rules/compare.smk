# Two runs row by row; by default the recordings, and what results/measure holds. It fails for no slower row: results/compare
# says which there are. `python -m gemmrepro compare` has the exit code, and takes commits.
COMPARED = {"before": PLAN.recordings, "after": "results/measure"} | {
    side: folder for side, folder in config.get("compare", {}).items() if folder
}


rule compare:
    input:
        # A run of this workflow is made first.
        PLAN.measurements(FAMILIES) if "results/measure" in COMPARED.values() else [],
        image=in_image("report"),
    output:
        figure=report(
            "results/compare/changes.svg",
            caption="../report/figure.rst",
            category="Comparison",
        ),
        table="results/compare/changes.csv",
        text="results/compare/changes.txt",
    log:
        "results/logs/compare.log",
    container:
        image("report")
    params:
        before=lambda wildcards: COMPARED["before"],
        after=lambda wildcards: COMPARED["after"],
        code=code("recordings.compare"),
    message:
        "Comparing {params.after} with {params.before}"
    shell:
        "python3 -m gemmrepro compare {params.before} {params.after} --csv {output.table} --figure {output.figure}"
        " > {output.text} 2> {log} || test $? = 3 || {{ cat {log} >&2; exit 1; }}"
