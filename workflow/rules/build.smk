# One job per kernel and toolkit: a fat binary, its disassembly, and a record with the build key.


rule build_kernel:
    input:
        source=lambda wildcards: relative([kernel_of(wildcards).source_path]),
        headers=lambda wildcards: relative(kernel_of(wildcards).header_paths),
        image=in_image("{toolkit}"),
    output:
        binary="results/build/{toolkit}/{kernel}.fatbin",
        sass="results/build/{toolkit}/{kernel}.sass",
        record="results/build/{toolkit}/{kernel}.json",
    log:
        "results/logs/build/{toolkit}/{kernel}.log",
    container:
        "resources/images/{toolkit}.sif"
    params:
        architectures=lambda wildcards: ",".join(PLAN.architectures(kernel_of(wildcards), wildcards.toolkit)),
        registered=lambda wildcards: keys.compiled(kernel_of(wildcards)),
        code=build_code,
        folder=subpath(output.record, parent=True),
    message:
        "Compiling {wildcards.kernel} with {wildcards.toolkit} for sm_{params.architectures}"
    shell:
        "python3 -m gemmrepro.build.stage --kernel {wildcards.kernel} --toolkit {wildcards.toolkit}"
        " --archs {params.architectures} --out {params.folder} 2>&1 | tee {log}"


rule build:
    input:
        PLAN.builds_in(FAMILIES),
