# Bills of materials of the images, in CycloneDX.


rule bill_of_materials:
    # On the host: it starts the image, and asks Apptainer about it.
    input:
        sif=lambda wildcards: ancient(image(wildcards.env)),
        lock="resources/images/{env}.lock.json",
        recipe=checked_out("docker/{env}.Dockerfile"),
        hashes=checked_out("nix/sources.json"),
        allowed=lambda wildcards: [
            path for path in [checked_out(f"envs/requirements/{wildcards.env}.txt")] if Path(path).is_file()
        ],
    output:
        "results/sbom/{env}.cdx.json",
    log:
        "results/logs/sbom/{env}.log",
    localrule: True
    params:
        code=code("host.sbom", "host.inventory"),
    message:
        "Listing the packages of the image {wildcards.env}, with hashes and licences"
    run:
        shell(
            "python3 -m gemmrepro sbom --env {wildcards.env} --sif {input.sif} --lock {input.lock}"
            " --out {output} 2>&1 | tee {log}"
        )


rule sbom:
    input:
        expand("results/sbom/{env}.cdx.json", env=DEFAULT_IMAGES),
