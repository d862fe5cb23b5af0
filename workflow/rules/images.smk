# Dockerfile -> docker, podman or buildah -> archive -> SIF. The lock lists what is inside.


rule image:
    # The one rule that no container can hold: the host's own image builder does the work.
    input:
        recipe="docker/{env}.Dockerfile",
        requirements="envs/requirements/{env}.txt",
        # An edit of the builder's code makes no other image.
        code=ancient(code("images")),
    output:
        sif="resources/images/{env}.sif",
        lock="resources/images/{env}.lock.json",
    log:
        "results/logs/images/{env}.log",
    localrule: True
    threads: 2
    message:
        "Building the container image {wildcards.env}"
    run:
        shell(
            "python3 -m gemmrepro.images --env {wildcards.env} --recipe {input.recipe}"
            " --sif {output.sif} --lock {output.lock} 2>&1 | tee {log}"
        )


rule images:
    input:
        expand("resources/images/{env}.sif", env=DEFAULT_IMAGES),
