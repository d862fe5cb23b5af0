# gemmrepro_blas as a wheel that needs no checkout: its modules, the run's binaries, and their launch table.
if "cuda13" in PLAN.toolkits and {"crt", "sgemm"} <= set(FAMILIES):

    rule wheel:
        # On the host: it packs files.
        input:
            binaries=expand(
                "results/build/cuda13/{kernel}.{suffix}",
                kernel=["crt.first_wave", *(kernel.id for kernel in registry.kernels("sgemm"))],
                suffix=("fatbin", "json"),
            ),
            package=relative(sorted(Path(checked_out("blas/gemmrepro_blas")).glob("*.py"))),
            about=[checked_out(f"blas/{name}") for name in ("wheel.py", "pyproject.toml", "README.md")],
        output:
            directory("results/wheel"),
        log:
            "results/logs/wheel.log",
        localrule: True
        params:
            build=subpath(input[0], parent=True),
            code=code("registry", "ozaki.decided"),
        message:
            "Packing the products that programs may call into a wheel"
        run:
            shell("python3 {input.about[0]} --build {params.build} --out {output} 2>&1 | tee {log}")
