# Declared measurements that are not sweeps. They run on the GPU where there is one, and are taken from the recordings
# otherwise; those that need no GPU run on the CPU in the default run too, unless recordings are asked for.

# Minutes and megabytes to ask a cluster for. Here and not in its profile, which would have to name every family's rule.
CLUSTER_LIMITS = {"runtime": 240, "mem_mb": 64000}

# Snakemake sets these to a job's threads. A job on the GPU has one, so what it measures on the CPU would get one core.
EVERY_CORE = (
    "unset OMP_NUM_THREADS GOTO_NUM_THREADS OPENBLAS_NUM_THREADS MKL_NUM_THREADS VECLIB_MAXIMUM_THREADS"
    " NUMEXPR_NUM_THREADS"
)

for source in sources():

    rule:
        name:
            f"experiments_of_{source.family}"
        input:
            **experiment_inputs(source),
            image=in_image(source.image),
        output:
            report(
                expand("results/experiments/{family}/{name}.csv", family=source.family, name=source.names),
                caption="../report/experiments.rst",
                category="Experiments",
                subcategory=source.family,
            ),
            expand("results/experiments/{family}/{name}.json", family=source.family, name=source.names),
        log:
            f"results/logs/experiments/{source.family}_{'gpu' if source.gpu else 'cpu'}.log",
        priority: ON_GPU if source.gpu else 0
        container:
            image(source.image)
        threads: source.threads
        resources:
            **(CLUSTER_LIMITS if source.gpu else {}),
            gpu=source.gpu,
        params:
            family=source.family,
            names=",".join(source.names),
            folder=subpath(output[0], parent=True),
            command=experiment_command(source),
            run=launched(experiment_kernels(source.family, source.names)),
            sources=contents_of_sources(experiment_sources(source.family, source.names)),
            code=code("experiments.run", experiments.path_of(source.family)),
            origin=source.message,
        message:
            "Experiments of {params.family}, {params.origin}: {params.names}"
        shell:
            f"{EVERY_CORE}; "
            "python3 -m gemmrepro experiments --family {params.family} --name {params.names} {params.command}"
            " --out {params.folder} 2>&1 | tee {log}"


for family, names in RECORDED_EXPERIMENTS.items():

    rule:
        name:
            f"experiments_{family}"
        input:
            recorded=ancient(recorded_experiments(family, names)),
            records=[path for kernel in experiment_kernels(family, names) for path in PLAN.builds_of(kernel)],
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
            names=",".join(names),
            recordings=lambda wildcards: PLAN.recordings,
            run=launched(experiment_kernels(family, names)),
            recorded=contents(recorded_experiments(family, names)),
            code=code("recordings.bring", experiments.path_of(family)),
        message:
            "Experiments of {params.family}, from {params.recordings}"
        shell:
            "python3 -m gemmrepro recorded-experiments --experiments {params.family}={params.names}"
            " --recorded {params.recordings} --build results/build --out results/experiments"
            " 2>&1 | tee {log}"


rule experiments:
    input:
        PLAN.experiment_files(FAMILIES),
    message:
        "The experiments are in results/experiments"
