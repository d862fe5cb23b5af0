# Static gate everywhere; numerical gate on a GPU, else the recorded verdict of the very same binary.

if MEASURE == "live":

    rule gate_numeric:
        input:
            binaries=lambda wildcards: builds_of(kernel_of(wildcards), "fatbin"),
            records=lambda wildcards: builds_of(kernel_of(wildcards)),
            code=code("gates.numeric"),
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
            registered=lambda wildcards: registry.fingerprint(kernel_of(wildcards)),
        message:
            "Checking the numbers of {wildcards.kernel} on the GPU"
        shell:
            "python3 -m gemmrepro.gates.numeric --kernel {wildcards.kernel} --build results/build"
            " --seeds {params.seeds} --out {output} 2>&1 | tee {log}"


rule gate:
    input:
        records=lambda wildcards: builds_of(kernel_of(wildcards)),
        numeric=numeric_evidence,
        code=code("gates.stage"),
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
        toolkits=lambda wildcards: ",".join(toolkits_of(kernel_of(wildcards))),
        evidence=lambda wildcards: (
            f"--numeric results/gates/numeric/{wildcards.kernel}.json"
            if MEASURE == "live"
            else f"--recorded {RECORDED}"
        ),
        registered=lambda wildcards: registry.fingerprint(kernel_of(wildcards)),
    message:
        "Judging {wildcards.kernel}"
    shell:
        "python3 -m gemmrepro.gates.stage --kernel {wildcards.kernel} --build results/build --toolkits {params.toolkits}"
        " {params.evidence} --out {output} 2>&1 | tee {log}"


rule gates:
    input:
        verdicts=expand("results/gates/{kernel}.json", kernel=list(KERNELS)),
        image=in_image("report"),
    log:
        "results/logs/gates/gates.log",
    container:
        image("report")
    message:
        "Every gate's verdict; fails if a kernel failed one"
    shell:
        "python3 -m gemmrepro.gates.stage --check {input.verdicts} 2>&1 | tee {log}"
