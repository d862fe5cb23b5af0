# From containers to verdicts: the stages, in their order. Data flows down, never back.
configfile: "config/config.yaml"


include: "workflow/rules/common.smk"  # the checked configuration, and the plan for this machine
include: "workflow/rules/inputs.smk"  # what the rules below read
include: "workflow/rules/images.smk"  # docker/ -> the container of each rule
include: "workflow/rules/build.smk"  # kernels/ -> binaries, their machine code and keys
include: "workflow/rules/gates.smk"  # which kernels compute what they promise
include: "workflow/rules/sweep.smk"  # times against the vendor's library, by size
include: "workflow/rules/regimes.smk"  # times sustained and in bursts
include: "workflow/rules/experiments.smk"  # what else families measure
include: "workflow/rules/analysis.smk"  # verdicts on the published claims, and figures
include: "workflow/rules/own.smk"  # kernels of one's own, beside their baselines
include: "workflow/rules/report.smk"  # the pages


rule all:
    default_target: True
    input:
        rules.report.output,


# On request.
include: "workflow/rules/tune.smk"  # constants for this machine's GPU
include: "workflow/rules/just_in_time.smk"  # cuTile's binaries against its just-in-time compiler's
include: "workflow/rules/compare.smk"  # two runs, row by row
include: "workflow/rules/crate.smk"  # a finished run as an RO-Crate
include: "workflow/rules/sbom.smk"  # bills of materials of the images
include: "workflow/rules/wheel.smk"  # products that programs may call, for pip


if RUN:
    check_targets()
if workflow.is_main_process:
    MEMO.save()

gc.freeze()
gc.enable()
