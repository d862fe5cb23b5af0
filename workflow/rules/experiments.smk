# Declared measurements that are not sweeps. They run on the GPU where there is one, and are taken from the recordings
# otherwise; those that need no GPU run on the CPU in the default run too, unless recordings are asked for.

for source in [LIVE, PYTORCH] if PLAN.live else [CPU] if PLAN.runs_on_cpu_here else []:

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
            run=lambda wildcards: launched(PLAN.experiment_kernels(wildcards.family, wildcards.experiment)),
            code=code(f"experiments.{source.stage}"),
            stage=source.stage,
            origin=source.message,
        message:
            "Experiment {wildcards.experiment} of {wildcards.family}, {params.origin}"
        shell:
            "python3 -m gemmrepro.experiments.{params.stage} --family {wildcards.family} --name {wildcards.experiment}"
            " {params.command} --out {params.folder} 2>&1 | tee {log}"


for family, names in RECORDED_EXPERIMENTS.items():

    rule:
        name:
            f"experiments_{family}"
        input:
            sources=relative(experiment_sources(family, names)),
            records=[path for kernel in experiment_kernels(family, names) for path in PLAN.builds_of(kernel)],
            recording=PLAN.recorded(
                family, *(f"experiments/{name}.{suffix}" for name in names for suffix in ("csv", "json")), MANIFEST
            ),
            schema=checked_out("workflow/schemas/experiment.schema.yaml"),
            image=in_image("report"),
        output:
            report(
                expand("results/experiments/{family}/{name}.csv", family=family, name=names),
                caption="../report/experiments.rst",
                category="Experiments",
                subcategory=family,
            ),
            expand("results/experiments/{family}/{name}.json", family=family, name=names),
        log:
            f"results/logs/experiments/{family}.log",
        container:
            image("report")
        params:
            family=family,
            names=names,
            recordings=lambda wildcards: PLAN.recordings,
            declared=[
                file_hash(path)
                for path in (experiments.path_of(family), *experiment_sources(family, names))
                if path.suffix == ".py"
            ],
            run=launched(experiment_kernels(family, names)),
            code=code("experiments.recorded"),
        message:
            "Experiments of {params.family}, from {params.recordings}"
        shell:
            "python3 -m gemmrepro.experiments.recorded --family {params.family} --names {params.names}"
            " --recorded {params.recordings} --build results/build --out results/experiments/{params.family}"
            " 2>&1 | tee {log}"


rule experiments:
    input:
        PLAN.experiment_files(FAMILIES),
