# Rows come from this machine's GPU or from the committed recordings; both leave the same four files.


rule settings:
    output:
        "results/config.json",
    log:
        "results/logs/settings.log",
    localrule: True
    params:
        config=config,
    run:
        from gemmrepro.files import write_json

        write_json(output[0], params.config)


if MEASURE == "live":

    rule measure:
        input:
            binaries=lambda wildcards: builds_in([wildcards.family], "fatbin"),
            records=lambda wildcards: builds_in([wildcards.family]),
            gates=lambda wildcards: [f"results/gates/{kernel.id}.json" for kernel in kernels_of(wildcards.family)],
            config="results/config.json",
            code=code("measure.sweep") + code("measure.counters"),
            image=in_image("torch"),
        output:
            report(
                "results/measure/{family}/summary.csv",
                caption="../report/measurements.rst",
                category="Measurements",
                subcategory="{family}",
            ),
            expand("results/measure/{{family}}/{name}", name=MEASUREMENTS[1:]),
        log:
            "results/logs/measure/{family}.log",
        container:
            image("torch")
        resources:
            gpu=1,
        params:
            folder=subpath(output[0], parent=True),
        message:
            "Measuring {wildcards.family} on the GPU (finished points are kept if this is interrupted)"
        shell:
            "python3 -m gemmrepro.measure.sweep --family {wildcards.family} --config {input.config} --build results/build"
            " --gates results/gates --journal results/sweep/{wildcards.family} --out {params.folder} 2>&1 | tee {log}"

else:

    rule measure:
        input:
            recording=lambda wildcards: recorded(wildcards.family, *MEASUREMENTS),
            records=lambda wildcards: builds_in([wildcards.family]),
            code=code("measure.recorded"),
            image=in_image("report"),
        output:
            report(
                "results/measure/{family}/summary.csv",
                caption="../report/measurements.rst",
                category="Measurements",
                subcategory="{family}",
            ),
            expand("results/measure/{{family}}/{name}", name=MEASUREMENTS[1:]),
        log:
            "results/logs/measure/{family}.log",
        container:
            image("report")
        params:
            folder=subpath(output[0], parent=True),
            recorded=RECORDED,
        message:
            "Taking the recorded measurements of {wildcards.family} from {params.recorded}"
        shell:
            "python3 -m gemmrepro.measure.recorded --family {wildcards.family} --recorded {params.recorded}"
            " --build results/build --out {params.folder} 2>&1 | tee {log}"


rule sweep:
    input:
        expand("results/measure/{family}/summary.csv", family=FAMILIES),
