# Users of cuTile compile just in time; the result must match the binaries here. Nothing else depends on it.
COMPILED_IN_TIME = [
    family for family in FAMILIES if any(kernel.compiler_traits.just_in_time for kernel in PLAN.kernels_of(family))
]


rule just_in_time_check:
    input:
        records=lambda wildcards: PLAN.builds_in([wildcards.family]),
        binaries=lambda wildcards: PLAN.builds_in([wildcards.family], "fatbin"),
        image=in_image("cuda13"),
    output:
        "results/just_in_time/{family}.json",
    log:
        "results/logs/just_in_time/{family}.log",
    container:
        image("cuda13")
    resources:
        gpu=1,
    params:
        run=lambda wildcards: read_of("run", wildcards.family),
        code=code("measure.just_in_time"),
    message:
        "Compiling the kernels of {wildcards.family} just in time, to compare them with their binaries"
    shell:
        "python3 -m gemmrepro just-in-time --family {wildcards.family} --build results/build --out {output}"
        " 2>&1 | tee {log}"


rule just_in_time:
    input:
        expand("results/just_in_time/{family}.json", family=COMPILED_IN_TIME),
