# Static gate everywhere. Numerical gate on a GPU; without one, the recorded verdict of the same run and the same gate.

if PLAN.live:

    # One job a family: a process and a container for each of 200 kernels would take longer than their judgement. A kernel
    # that hangs or breaks the GPU's context fails by itself. Only binaries that are measured are judged, unless
    # `gates.binaries` asks for all.
    rule gate_numeric:
        input:
            binaries=lambda wildcards: PLAN.judged_in(wildcards.family, "fatbin"),
            records=lambda wildcards: PLAN.judged_in(wildcards.family),
            image=in_image("measure"),
        output:
            directory("results/gates/numeric/{family}"),
        log:
            "results/logs/gates/numeric/{family}.log",
        # The GPU never waits for what needs none: builds, figures.
        priority: ON_GPU
        container:
            image("measure")
        # A gate spends most of its time on reference results on the host, and nothing is timed meanwhile. As many run side
        # by side as there are slots: one starts, or waits for its longest kernel, while another computes.
        threads: max(8, min(16, (workflow.resource_settings.cores or 1) // TARGET.slots))
        resources:
            gpu=1,
        params:
            seeds=config["gates"]["seeds"],
            kernels=lambda wildcards: [
                f"{kernel.id}={','.join(PLAN.judged_with(kernel))}" for kernel in PLAN.together(wildcards.family)
            ],
            registered=lambda wildcards: [read_of("judged", kernel.id) for kernel in PLAN.together(wildcards.family)],
            protocol=lambda wildcards: [protocol_of(kernel.compute.op) for kernel in PLAN.together(wildcards.family)],
            code=code("gates.numeric", without=JUDGES),
        message:
            "Checking the numbers of {wildcards.family} on the GPU"
        shell:
            "mkdir -p {output}; python3 -m gemmrepro judge-numbers --kernels {params.kernels} --build results/build"
            " --seeds {params.seeds} --out-dir {output} --processes {threads} 2>&1 | tee {log}"


# By job: one a family on the GPU, where each waits for its own numerical gates; else one for all, since a process and a
# container would take longer than reading a family's recorded verdicts.
for name, judged in PLAN.judged_together().items():

    rule:
        name:
            f"gate_{name}"
        input:
            records=[path for kernel in judged for path in PLAN.builds_of(kernel)],
            numeric=[
                path
                for family in dict.fromkeys(kernel.family for kernel in judged)
                for path in (PLAN.numbers_of(family) if PLAN.live else ancient(PLAN.numbers_of(family)))
            ],
            image=in_image("report"),
        output:
            [
                report(
                    f"results/gates/{kernel.id}.json",
                    caption="../report/gates.rst",
                    category="Gates",
                    subcategory=kernel.family,
                )
                for kernel in judged
            ],
        log:
            f"results/logs/gates/{name}.log",
        container:
            image("report")
        params:
            kernels=[f"{kernel.id}={','.join(PLAN.toolkits_of(kernel))}" for kernel in judged],
            families=", ".join(dict.fromkeys(kernel.family for kernel in judged)),
            evidence=PLAN.evidence(name),
            recorded=[] if PLAN.live else contents(path for family in FAMILIES for path in PLAN.numbers_of(family)),
            registered=[read_of("judged", kernel.id) for kernel in judged],
            protocol=[protocol_of(op) for op in dict.fromkeys(kernel.compute.op for kernel in judged)],
            code=code("gates.stage", without=JUDGES),
        message:
            "Judging the kernels of {params.families}"
        shell:
            "python3 -m gemmrepro gates --kernels {params.kernels} --build results/build"
            " {params.evidence} --out results/gates 2>&1 | tee {log}"


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
        "python3 -m gemmrepro gates --check {input.verdicts} 2>&1 | tee {log}"
