# Rows come from this machine's GPU or from the committed recordings; both end in the same four files.


rule settings:
    output:
        "results/config.json",
    log:
        "results/logs/settings.log",
    localrule: True
    params:
        config=PLAN.settings,
    run:
        from gemmrepro.core.files import write_json

        write_json(output[0], params.config)


# What this GPU can run none of the kernels of starts no container.
if PLAN.nothing_of(FAMILIES):

    rule unmeasured:
        output:
            PLAN.nothing_of(FAMILIES),
        log:
            "results/logs/unmeasured.log",
        localrule: True
        params:
            sweeps=IDLE.sweeps,
            regimes=IDLE.regimes,
            experiments=IDLE.experiments,
        run:
            from gemmrepro.host.plan import write_nothing

            write_nothing(Path("results"), params.sweeps, params.regimes, params.experiments)

    ruleorder: unmeasured > measure

    if IDLE.regimes:

        ruleorder: unmeasured > measure_regimes


rule measure:
    input:
        unpack(measured_from),
        image=in_image("measure" if PLAN.live else "report"),
    output:
        report(
            "results/measure/{family}/summary.csv",
            caption="../report/measurements.rst",
            category="Measurements",
            subcategory="{family}",
        ),
        expand("results/measure/{{family}}/{name}", name=FILES[1:]),
    log:
        "results/logs/measure/{family}.log",
    priority: ON_GPU if PLAN.live else 0
    container:
        image("measure" if PLAN.live else "report")
    resources:
        gpu=1 if PLAN.live else 0,
    params:
        # Recorded rows are also held against what is declared of their kernels.
        run=lambda wildcards: read_of_families("run" if PLAN.live else "drawn", [wildcards.family]),
        recording=lambda wildcards: "" if PLAN.live else contents(recording(wildcards.family)),
        code=code("measure.sweep") if PLAN.live else code("recordings.bring"),
        command=lambda wildcards: (
            f"sweep --family {wildcards.family} --config results/config.json --gates results/gates"
            f" --journal results/sweep/{wildcards.family} --out results/measure/{wildcards.family}"
            if PLAN.live
            else f"recorded-rows --families {wildcards.family} --recorded {PLAN.recordings} --out results/measure"
        ),
    message:
        "Measuring {wildcards.family}: {params.command} (finished points survive an interruption)"
    shell:
        # The log gets the points' results (stdout) too, the terminal only the progress.
        ": >{log}; python3 -m gemmrepro {params.command} --build results/build 2>&1 >>{log} | tee -a {log}"


rule sweep:
    input:
        expand("results/measure/{family}/summary.csv", family=FAMILIES),
    message:
        "The times are in results/measure"
