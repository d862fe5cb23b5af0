# Dockerfile -> root file system, by docker, podman or buildah -> SIF. The lock lists what is inside.

# Largest image first: a build needs four times its image's size, so the peak on disk is lowest while the others do not
# exist yet. A build keeps one core busy: with two, two images are built side by side. PyTorch's comes last: only its own experiments wait for it.
for rank, env in enumerate(["torch", "measure", "report", "torchcpu", "cuda12", "cuda13"]):

    rule:
        # The one rule that cannot run in a container: it calls the host's image builder.
        name:
            f"image_{env}"
        input:
            recipe=ancient(recipe_of(env)),
            # Of all images' packages: a parameter notices what concerns this one.
            debian=ancient(checked_out("nix/sources.json")),
        output:
            sif=f"resources/images/{env}.sif",
            lock=f"resources/images/{env}.lock.json",
        log:
            f"results/logs/images/{env}.log",
        # Before any build: with two cores, kernels are compiled on one while the other makes the report's image.
        priority: 1000 + rank
        localrule: True
        threads: 1
        params:
            env=env,
            recipe=contents(recipe_of(env)),
            debian=SOURCES.debian_sha256(env),
        message:
            "Building the container image {params.env}"
        run:
            shell(
                "python3 -m gemmrepro image --env {params.env} --recipe {input.recipe[0]}"
                " --sif {output.sif} --lock {output.lock} 2>&1 | tee {log}"
            )


rule images:
    input:
        expand("resources/images/{env}.sif", env=DEFAULT_IMAGES),
    message:
        "The images are in resources/images"
