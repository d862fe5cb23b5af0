# Dockerfile -> root file system, by docker, podman or buildah -> SIF. The lock lists what is inside.

# The last is built first. The largest are: a build needs four times its image's size, so the peak on disk is lowest
# while the others do not exist yet. But PyTorch's comes after all: only its own experiments wait for it.
IMAGES = ["torch", "measure", "report", "torchcpu", "cuda12", "cuda13"]


# The one rule that cannot run in a container: it calls the host's image builder. A build keeps one core busy: with two,
# two images are built side by side.
rule image:
    input:
        recipe=lambda wildcards: ancient(recipe_of(wildcards.env)),
        # Of all images' packages: a parameter notices what concerns this one.
        debian=ancient(checked_out("nix/sources.json")),
    output:
        sif="resources/images/{env}.sif",
        lock="resources/images/{env}.lock.json",
    log:
        "results/logs/images/{env}.log",
    wildcard_constraints:
        env="|".join(IMAGES),
    # Before any build: with two cores, kernels are compiled on one while the other makes the report's image.
    priority: lambda wildcards: 1000 + IMAGES.index(wildcards.env)
    localrule: True
    threads: 1
    params:
        recipe=lambda wildcards: contents(recipe_of(wildcards.env)),
        debian=lambda wildcards: SOURCES.debian_sha256(wildcards.env),
    message:
        "Building the container image {wildcards.env}"
    run:
        shell(
            "python3 -m gemmrepro image --env {wildcards.env} --recipe {input.recipe[0]}"
            " --sif {output.sif} --lock {output.lock} 2>&1 | tee {log}"
        )


rule images:
    input:
        expand("resources/images/{env}.sif", env=DEFAULT_IMAGES),
    message:
        "The images are in resources/images"
