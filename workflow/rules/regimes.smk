# Kernels sustained and in bursts: from this machine's GPU, or from the committed takes.

if PLAN.live:

    rule measure_regimes:
        input:
            unpack(measured_from),
            image=in_image("measure"),
        output:
            expand("results/regimes/{{family}}/{name}", name=REGIME_FILES),
        log:
            "results/logs/regimes/{family}.log",
        priority: ON_GPU
        container:
            image("measure")
        resources:
            gpu=1,
        params:
            folder=subpath(output[0], parent=True),
            run=lambda wildcards: read_of("run", wildcards.family),
            code=code("measure.sweep"),
        message:
            "Measuring {wildcards.family} sustained and in bursts (finished passes survive an interruption)"
        shell:
            ": >{log}; python3 -m gemmrepro sweep --regimes --family {wildcards.family} --config results/config.json"
            " --build results/build --gates results/gates --journal results/sweep/regimes/{wildcards.family}"
            " --out {params.folder} 2>&1 >>{log} | tee -a {log}"

else:

    rule recorded_regimes:
        input:
            records=lambda wildcards: PLAN.builds_in([wildcards.family]),
            takes=lambda wildcards: ancient(recorded_takes(wildcards.family)),
            image=in_image("report"),
        output:
            expand("results/regimes/{{family}}/{name}", name=REGIME_FILES),
        log:
            "results/logs/regimes/{family}.log",
        container:
            image("report")
        params:
            recordings=lambda wildcards: PLAN.recordings,
            run=lambda wildcards: read_of_families("drawn", [wildcards.family]),
            takes=lambda wildcards: contents(recorded_takes(wildcards.family)),
            code=code("recordings.bring"),
        message:
            "Checking the recorded regimes of {wildcards.family}"
        shell:
            "python3 -m gemmrepro recorded-rows --families {wildcards.family} --recorded {params.recordings}"
            " --build results/build --regimes results/regimes 2>&1 | tee {log}"


rule regimes:
    input:
        PLAN.regimes(),
    message:
        "The sustained and burst measurements are in results/regimes"
