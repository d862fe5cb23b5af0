# Constants for this machine's GPU: every combination that the registry declares is compiled, judged and timed, and the
# best goes into kernels/<family>/tuned/<gpu>.json. No other rule reads these outputs; they are made on request only.

TUNE = config["tune"]
TUNABLES = {tunable.id: tunable for family in FAMILIES for tunable in registry.tunables(family)}
UNSIZED = sorted(
    {name.split(".")[0] for name in TUNABLES} - {family for family, sizes in TUNE["sizes"].items() if sizes}
)
if UNSIZED:
    stop(f"the configuration is wrong: tune.sizes: family {UNSIZED[0]} has no sizes; add a list, such as [4096].")


wildcard_constraints:
    tunable="|".join(name.replace(".", "[.]") for name in TUNABLES) or "none",


rule tune_compile:
    input:
        sources=lambda wildcards: ancient(sources_of(candidates_of(wildcards))),
        image=in_image(TUNE["toolkit"]),
    output:
        "results/tune/build/{tunable}/candidates.json",
    log:
        "results/logs/tune/{tunable}.compile.log",
    container:
        image(TUNE["toolkit"])
    threads: TUNE["jobs"]
    params:
        toolkit=TUNE["toolkit"],
        arch=TARGET.gpu.capability if TARGET.gpu else TUNE["arch"],
        # Changes with the search space and the records made from it.
        declared=lambda wildcards: trees.digest("".join(map(keys.judged, candidates_of(wildcards)))),
        sources=lambda wildcards: contents_of_sources(sources_of(candidates_of(wildcards))),
        code=code("tune.bench", without=["registry"]),
        folder=subpath(output[0], parent=True),
    message:
        "Compiling the candidates of {wildcards.tunable} (already compiled ones are kept)"
    shell:
        "python3 -m gemmrepro tune-compile --kernel {wildcards.tunable} --toolkit {params.toolkit}"
        " --arch {params.arch} --jobs {threads} --out {params.folder} 2>&1 | tee {log}"


if PLAN.live:

    rule tune_measure:
        input:
            candidates="results/tune/build/{tunable}/candidates.json",
            image=in_image("measure"),
        output:
            winner="results/tune/{tunable}.json",
            table="results/tune/{tunable}.csv",
        log:
            "results/logs/tune/{tunable}.log",
        container:
            image("measure")
        resources:
            gpu=1,
        params:
            folder=subpath(input.candidates, parent=True),
            sizes=lambda wildcards: ",".join(
                map(str, TUNABLES[wildcards.tunable].sizes or TUNE["sizes"][wildcards.tunable.split(".")[0]])
            ),
            code=code("tune.stage"),
        message:
            "Tuning {wildcards.tunable} on the GPU (finished timings survive an interruption)"
        shell:
            "python3 -m gemmrepro tune-measure --kernel {wildcards.tunable} --candidates {params.folder}"
            " --sizes {params.sizes} --out {output.winner} 2>&1 | tee {log}"

    rule tune:
        input:
            results=expand("results/tune/{tunable}.json", tunable=list(TUNABLES)),
            image=in_image("measure"),
        log:
            "results/logs/tune/install.log",
        container:
            image("measure")
        message:
            "Writing the winners to kernels/*/tuned/"
        shell:
            "python3 -m gemmrepro tune-install {input.results} 2>&1 | tee {log}"

else:

    rule tune:
        log:
            "results/logs/tune/install.log",
        localrule: True
        params:
            why=f"measure is '{PLAN.measure}'" if TARGET.gpu else TARGET.why_not,
        message:
            "Tuning times candidates on an NVIDIA GPU, and here {params.why}"
        run:
            raise WorkflowError(
                f"the target tune needs a usable NVIDIA GPU, and {params.why}; run it on a machine with one."
            )
