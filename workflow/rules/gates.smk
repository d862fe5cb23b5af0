# Static gate everywhere. Numerical gate on a GPU; without one, the recorded verdict of the same run and the same gate.

if PLAN.live:

    rule gate_numeric:
        input:
            binaries=lambda wildcards: PLAN.builds_of(kernel_of(wildcards), "fatbin"),
            records=lambda wildcards: PLAN.builds_of(kernel_of(wildcards)),
            image=in_image("torch"),
        output:
            "results/gates/numeric/{kernel}.json",
        log:
            "results/logs/gates/numeric/{kernel}.log",
        container:
            image("torch")
        resources:
            gpu=1,
        params:
            seeds=config["gates"]["seeds"],
            registered=lambda wildcards: keys.judged(kernel_of(wildcards)),
            protocol=lambda wildcards: protocol(kernel_of(wildcards)),
            code=code("gates.numeric", without=JUDGES),
        message:
            "Checking the numbers of {wildcards.kernel} on the GPU"
        shell:
            "python3 -m gemmrepro.gates.numeric --kernel {wildcards.kernel} --build results/build"
            " --seeds {params.seeds} --out {output} 2>&1 | tee {log}"


rule gate:
    input:
        records=lambda wildcards: PLAN.builds_of(kernel_of(wildcards)),
        numeric=numeric_verdict,
        image=in_image("report"),
    output:
        report(
            "results/gates/{kernel}.json",
            caption="../report/gates.rst",
            category="Gates",
            labels={"kernel": "{kernel}"},
        ),
    log:
        "results/logs/gates/{kernel}.log",
    container:
        image("report")
    params:
        toolkits=lambda wildcards: ",".join(PLAN.toolkits_of(kernel_of(wildcards))),
        evidence=lambda wildcards: (
            f"--numeric results/gates/numeric/{wildcards.kernel}.json"
            if PLAN.live
            else f"--recorded {PLAN.recordings}"
        ),
        registered=lambda wildcards: keys.judged(kernel_of(wildcards)),
        protocol=lambda wildcards: protocol(kernel_of(wildcards)),
        code=code("gates.stage", without=JUDGES),
    message:
        "Judging {wildcards.kernel}"
    shell:
        "python3 -m gemmrepro.gates.stage --kernel {wildcards.kernel} --build results/build"
        " --toolkits {params.toolkits} {params.evidence} --out {output} 2>&1 | tee {log}"


rule gates:
    input:
        verdicts=PLAN.gates_in(FAMILIES),
        image=in_image("report"),
    log:
        "results/logs/gates/gates.log",
    container:
        image("report")
    message:
        "Listing every gate's verdict; fails if a kernel failed its gate"
    shell:
        "python3 -m gemmrepro.gates.stage --check {input.verdicts} 2>&1 | tee {log}"
