# One job per kernel and toolkit: a fat binary, its disassembly, and a record with the build key.

# Modules that serve one compiler alone: an edit of theirs recompiles only its kernels.
OF_COMPILER = {
    "cute_dsl": ["build.cute_dsl", "build.cute_dsl_trace"],
    "cutile": ["build.cutile", "build.cutile_export"],
}


def build_code(wildcards):
    """The build's code. The registry's counts by what it says of the kernel (`registered`), not by itself."""
    compiler = kernel_of(wildcards).code.compiler
    others = [module for name, modules in OF_COMPILER.items() if name != compiler for module in modules]
    return code("build.stage", without=["registry", *others])


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
        architectures=lambda wildcards: ",".join(PLAN.architectures(wildcards.toolkit)),
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
