# One job per family and toolkit, or two where it takes minutes: for each kernel a fat binary, its disassembly, and a
# record with the build key. Kernels that the cache holds are not compiled again, so an edit of one recompiles that one
# alone. A kernel whose machine code the run does not read gets only a record with its build key (`compiled_once` in the
# configuration).


# Half of the cores, so that two jobs run side by side: a job's start and its last listing keep one core busy alone. A
# kernel alone takes all, and so does a job on a cluster, where each has a node's cores to itself.
SHARED = workflow.is_main_process and workflow.resource_settings.cores and not PLAN.only
BUILD_THREADS = max(1, min(8, workflow.resource_settings.cores // 2)) if SHARED else 8


for family in FAMILIES:
    for toolkit in PLAN.toolkits:
        for number, together in enumerate(batches := PLAN.batches(family, toolkit), 1):
            part = f"_{number}" if len(batches) > 1 else ""

            rule:
                name:
                    f"build_{family}_{toolkit}{part}"
                input:
                    sources=ancient(sources_of(together)),
                    image=in_image(toolkit),
                output:
                    [
                        f"results/build/{toolkit}/{kernel.id}.{suffix}"
                        for kernel in together
                        for suffix in (("fatbin", "sass", "json") if toolkit in PLAN.compiling(kernel) else ("json",))
                    ],
                log:
                    f"results/logs/build/{toolkit}/{family}{part}.log",
                # The longest first.
                priority: sum(PLAN.effort(kernel, toolkit) for kernel in together)
                container:
                    image(toolkit)
                threads: BUILD_THREADS
                params:
                    kernels=[PLAN.wanted(kernel, toolkit) for kernel in together],
                    toolkit=toolkit,
                    family=family,
                    registered=[read_of("compiled", kernel.id) for kernel in together],
                    sources=contents_of_sources(sources_of(together)),
                    code=build_code(together),
                    folder=subpath(output[0], parent=True),
                message:
                    "Compiling the kernels of {params.family} with {params.toolkit} (those in the cache are kept)"
                shell:
                    "python3 -m gemmrepro build --kernels {params.kernels} --toolkit {params.toolkit}"
                    " --threads {threads} --out {params.folder} 2>&1 | tee {log}"


rule build:
    input:
        PLAN.builds_in(FAMILIES),
        PLAN.builds_in(FAMILIES, "fatbin"),
    message:
        "The kernels' binaries are in results/build"
