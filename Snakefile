# From containers to verdicts. The order of the includes is the order of the stages: data flows down, never back.
configfile: "workflow/config/default.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/inputs.smk"
include: "workflow/rules/images.smk"
include: "workflow/rules/build.smk"
include: "workflow/rules/gates.smk"
include: "workflow/rules/sweep.smk"
include: "workflow/rules/experiments.smk"
include: "workflow/rules/analysis.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/tune.smk"
include: "workflow/rules/just_in_time.smk"


rule all:
    default_target: True
    input:
        rules.report.output,
