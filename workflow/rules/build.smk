# One job a kernel a toolkit: a fat binary, its disassembly, and the record with the build key.


rule build_kernel:
    input:
        source=lambda wildcards: os.path.relpath(kernel_of(wildcards).source_path),
        headers=lambda wildcards: [os.path.relpath(path) for path in kernel_of(wildcards).header_paths],
        code=code("build.stage"),
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
        architectures=architectures,
        # What the build reads of the record beside the files above: another launch shape, say, compiles nothing anew.
        registered=lambda wildcards: registry.compiled_from(kernel_of(wildcards)),
        folder=subpath(output.record, parent=True),
    message:
        "Compiling {wildcards.kernel} with {wildcards.toolkit} for sm_{params.architectures}"
    shell:
        "python3 -m gemmrepro.build.stage --kernel {wildcards.kernel} --toolkit {wildcards.toolkit}"
        " --archs {params.architectures} --out {params.folder} 2>&1 | tee {log}"


rule build:
    input:
        builds_in(FAMILIES),
