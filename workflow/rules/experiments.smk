# Declared measurements that are no rows of the sweep. A family without any has no such files, and nothing waits for them.


if MEASURE == "live":

    rule experiment:
        input:
            declared="kernels/{family}/experiments.py",
            binaries=lambda wildcards: [
                path for kernel in kernels_in_experiment(wildcards) for path in builds_of(kernel, "fatbin")
            ],
            records=lambda wildcards: [
                path for kernel in kernels_in_experiment(wildcards) for path in builds_of(kernel)
            ],
            gates=lambda wildcards: [f"results/gates/{kernel.id}.json" for kernel in kernels_in_experiment(wildcards)],
            code=code("experiment"),
            image=in_image("torch"),
        output:
            report(
                "results/experiments/{family}/{experiment}.csv",
                caption="../report/experiments.rst",
                category="Experiments",
                subcategory="{family}",
            ),
            "results/experiments/{family}/{experiment}.json",
        log:
            "results/logs/experiments/{family}/{experiment}.log",
        container:
            image("torch")
        resources:
            gpu=1,
        params:
            folder=subpath(output[0], parent=True),
            toolkits=",".join(config["sweep"]["toolkits"]),
        message:
            "Running the experiment {wildcards.experiment} of {wildcards.family} on the GPU"
        shell:
            "python3 -m gemmrepro.experiment --family {wildcards.family} --name {wildcards.experiment}"
            " --toolkits {params.toolkits} --build results/build --gates results/gates"
            " --journal results/sweep/experiments/{wildcards.family} --out {params.folder} 2>&1 | tee {log}"

else:

    rule experiment:
        input:
            declared="kernels/{family}/experiments.py",
            recording=lambda wildcards: recorded(
                wildcards.family, *(f"experiments/{wildcards.experiment}.{suffix}" for suffix in ("csv", "json"))
            ),
            records=lambda wildcards: [
                path for kernel in kernels_in_experiment(wildcards) for path in builds_of(kernel)
            ],
            code=code("experiment_recorded"),
            image=in_image("report"),
        output:
            report(
                "results/experiments/{family}/{experiment}.csv",
                caption="../report/experiments.rst",
                category="Experiments",
                subcategory="{family}",
            ),
            "results/experiments/{family}/{experiment}.json",
        log:
            "results/logs/experiments/{family}/{experiment}.log",
        container:
            image("report")
        params:
            folder=subpath(output[0], parent=True),
            recorded=RECORDED,
        message:
            "Taking the recorded experiment {wildcards.experiment} of {wildcards.family} from {params.recorded}"
        shell:
            "python3 -m gemmrepro.experiment_recorded --family {wildcards.family} --name {wildcards.experiment}"
            " --recorded {params.recorded} --build results/build --out {params.folder} 2>&1 | tee {log}"


rule experiments:
    input:
        experiment_files(FAMILIES),
