# Declared measurements that are no rows of the sweep. A family without any has no such files, and nothing waits for them.
# What runs on the CPU is run where no GPU is, too, unless recordings are asked for.

ANY_EXPERIMENT = "[a-z0-9_]+"
ON_CPU = "|".join(sorted(each.name for named in EXPERIMENTS.values() for each in named if each.device == "cpu")) or "-"


if MEASURE == "live":

    rule experiment:
        input:
            declared="kernels/{family}/experiments.py",
            sources=experiment_sources,
            binaries=lambda wildcards: [
                path for kernel in kernels_in_experiment(wildcards) for path in builds_of(kernel, "fatbin")
            ],
            records=lambda wildcards: [
                path for kernel in kernels_in_experiment(wildcards) for path in builds_of(kernel)
            ],
            gates=lambda wildcards: [f"results/gates/{kernel.id}.json" for kernel in kernels_in_experiment(wildcards)],
            code=code("experiments.run"),
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
            settings=settings_of,
        message:
            "Running the experiment {wildcards.experiment} of {wildcards.family} on the GPU"
        shell:
            "python3 -m gemmrepro.experiments.run --family {wildcards.family} --name {wildcards.experiment}"
            " --toolkits {params.toolkits} --build results/build --gates results/gates --settings '{params.settings}'"
            " --journal results/sweep/experiments/{wildcards.family} --out {params.folder} 2>&1 | tee {log}"

else:

    if ON_CPU_HERE:

        rule experiment_on_cpu:
            input:
                declared="kernels/{family}/experiments.py",
                sources=experiment_sources,
                code=code("experiments.run"),
                image=in_image("torchcpu"),
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
            wildcard_constraints:
                experiment=ON_CPU,
            container:
                image("torchcpu")
            # All cores that there are: a job beside it would be measured too.
            threads: workflow.cores
            params:
                folder=subpath(output[0], parent=True),
                settings=settings_of,
            message:
                "Running the experiment {wildcards.experiment} of {wildcards.family} on the CPU"
            shell:
                "python3 -m gemmrepro.experiments.run --family {wildcards.family} --name {wildcards.experiment}"
                " --settings '{params.settings}' --journal results/sweep/experiments/{wildcards.family}"
                " --out {params.folder} 2>&1 | tee {log}"

    rule experiment:
        input:
            declared="kernels/{family}/experiments.py",
            sources=experiment_sources,
            recording=lambda wildcards: recorded(
                wildcards.family, *(f"experiments/{wildcards.experiment}.{suffix}" for suffix in ("csv", "json"))
            ),
            records=lambda wildcards: [
                path for kernel in kernels_in_experiment(wildcards) for path in builds_of(kernel)
            ],
            code=code("experiments.recorded"),
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
        wildcard_constraints:
            experiment=f"(?!(?:{ON_CPU})[.]){ANY_EXPERIMENT}" if ON_CPU_HERE else ANY_EXPERIMENT,
        container:
            image("report")
        params:
            folder=subpath(output[0], parent=True),
            recorded=RECORDED,
        message:
            "Taking the recorded experiment {wildcards.experiment} of {wildcards.family} from {params.recorded}"
        shell:
            "python3 -m gemmrepro.experiments.recorded --family {wildcards.family} --name {wildcards.experiment}"
            " --recorded {params.recorded} --build results/build --out {params.folder} 2>&1 | tee {log}"


rule experiments:
    input:
        experiment_files(FAMILIES),
