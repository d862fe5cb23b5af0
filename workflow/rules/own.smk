# Kernels of one's own: the files that the configuration names, and those in kernels/mine. A file that fails is a result,
# and no job's failure.
from gemmrepro.gpu import own as own_files
from gemmrepro.host.containers import bind

try:
    OWN_KERNELS = own_files.named([*config.get("kernels", []), *sorted(Path(checked_out("kernels/mine")).glob("*.py"))])
    bound = dict.fromkeys(path for own in OWN_KERNELS.values() for path in read_only(own))
    places.check_paths(CONTAINERS, bound=list(bound))
except UserError as error:
    stop(error)
os.environ.update(bind(os.environ, *(f"{path}:{path}:ro" for path in bound)))

OWN_RESULTS = [f"results/own/{name}.json" for name in OWN_KERNELS]
OWN_FIGURE = (
    [f"results/figures/own/ratio.{kind}" for kind in ("svg", "narrow.svg", "csv", "json")] if OWN_RESULTS else []
)


wildcard_constraints:
    mine="|".join(OWN_KERNELS) or "none",


if PLAN.live:

    rule own_kernel:
        input:
            files=lambda wildcards: list(map(str, OWN_KERNELS[wildcards.mine].all_files)),
            config="results/config.json",
            image=in_image("torch"),
        output:
            result="results/own/{mine}.json",
            rows="results/own/{mine}.csv",
        log:
            "results/logs/own/{mine}.log",
        priority: ON_GPU
        container:
            image("torch")
        resources:
            gpu=1,
        params:
            path=lambda wildcards: OWN_KERNELS[wildcards.mine].path,
            code=code("measure.own"),
        message:
            "Judging and timing {params.path} (what was finished survives an interruption)"
        shell:
            "python3 -m gemmrepro own --kernel {params.path:q} --config {input.config}"
            " --journal results/sweep/own/{wildcards.mine} --out {output.result} 2>&1 | tee {log}"

else:

    rule own_unmeasured:
        input:
            files=lambda wildcards: list(map(str, OWN_KERNELS[wildcards.mine].all_files)),
        output:
            result="results/own/{mine}.json",
            rows="results/own/{mine}.csv",
        log:
            "results/logs/own/{mine}.log",
        localrule: True
        params:
            why=f"measure is '{PLAN.measure}'" if TARGET.gpu else TARGET.why_not,
        run:
            from gemmrepro.measure.own import described, write

            about = described(OWN_KERNELS[wildcards.mine])
            write(Path(output.result), about | {"ended": f"not measured here: {params.why}"})


if OWN_RESULTS:

    rule own_figure:
        input:
            results=OWN_RESULTS,
            image=in_image("report"),
        output:
            OWN_FIGURE,
        log:
            "results/logs/figures/own.log",
        container:
            image("report")
        params:
            folder=subpath(OWN_FIGURE[0], parent=True),
            code=code("figures.stage"),
        message:
            "Drawing your kernels"
        shell:
            "python3 -m gemmrepro own-figures {input.results} --out results/figures/own 2>&1 | tee {log}"

    rule own:
        input:
            OWN_RESULTS,
            OWN_FIGURE,
        message:
            "The results are in results/own"

else:

    rule own:
        log:
            "results/logs/own.log",
        localrule: True
        run:
            raise WorkflowError(
                "there is no kernel of your own: name a file with --config 'kernels=[\"my_gemm.py\"]', or put it into"
                " kernels/mine/ (docs/adding.md)."
            )
