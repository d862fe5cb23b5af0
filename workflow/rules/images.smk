# Dockerfile -> docker, podman or buildah -> archive -> SIF. The lock lists what is inside.

# The largest image first: a build takes several times its image, so the peak on disk is least while the others are not
# there. The one for live measurement stays last; nothing else waits for it.
for rank, env in enumerate(["torch", "report", "torchcpu", "cuda12", "cuda13"]):

    rule:
        # The one rule that no container can hold: the host's own image builder does the work.
        name:
            f"image_{env}"
        input:
            recipe=f"docker/{env}.Dockerfile",
            # The image of Debian's own PyTorch has none.
            requirements=[path for path in [f"envs/requirements/{env}.txt"] if Path(path).is_file()],
        output:
            sif=f"resources/images/{env}.sif",
            lock=f"resources/images/{env}.lock.json",
        log:
            f"results/logs/images/{env}.log",
        priority: rank
        localrule: True
        threads: 2
        params:
            env=env,
        message:
            "Building the container image {params.env}"
        run:
            shell(
                "python3 -m gemmrepro.host.images --env {params.env} --recipe {input.recipe}"
                " --sif {output.sif} --lock {output.lock} 2>&1 | tee {log}"
            )


rule images:
    input:
        expand("resources/images/{env}.sif", env=DEFAULT_IMAGES),
