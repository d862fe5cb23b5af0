# Declared measurements that are not sweeps. They run on the GPU where there is one, and are taken from the recordings
# otherwise; those that need no GPU run on the CPU in the default run too, unless recordings are asked for.

for source in [LIVE] if PLAN.live else [CPU, RECORDED] if PLAN.runs_on_cpu_here else [RECORDED]:

    rule:
        name:
            source.name
        input:
            unpack(experiment_inputs(source)),
            image=in_image(source.image),
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
            experiment=source.names,
        container:
            image(source.image)
        threads: source.threads
        resources:
            gpu=source.gpu,
        params:
            folder=subpath(output[0], parent=True),
            command=experiment_command(source),
            declared=experiment_code,
            run=lambda wildcards: [
                keys.launched(kernel, keys.usual_shapes(kernel))
                for kernel in PLAN.experiment_kernels(wildcards.family, wildcards.experiment)
            ],
            code=code(f"experiments.{source.stage}"),
            stage=source.stage,
            origin=source.message,
        message:
            "Experiment {wildcards.experiment} of {wildcards.family}, {params.origin}"
        shell:
            "python3 -m gemmrepro.experiments.{params.stage} --family {wildcards.family} --name {wildcards.experiment}"
            " {params.command} --out {params.folder} 2>&1 | tee {log}"


rule experiments:
    input:
        PLAN.experiment_files(FAMILIES),
