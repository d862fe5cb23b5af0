# A finished run as a Workflow Run RO-Crate, to archive or to send.


rule crate:
    # On the host: it reads what Snakemake keeps about the jobs, and images.
    input:
        rules.all.input,
    output:
        directory("results/crate"),
    log:
        "results/logs/crate.log",
    localrule: True
    params:
        code=code("host.crate"),
    message:
        "Describing the run as an RO-Crate in {output}"
    run:
        shell("python3 -m gemmrepro crate --out {output} 2>&1 | tee {log}")
