"""Needs of kernels that a GPU may lack: asked of the record, before anything is compiled, loaded or judged."""

from collections import Counter
from collections.abc import Iterable, Mapping

from gemmrepro.core.architectures import (
    COMPILED,
    KNOWN,
    compiles,
    described,
    dotted,
    generations,
    newest,
    pick_arch,
    shared_limit,
)
from gemmrepro.registry.keys import usual_shapes
from gemmrepro.registry.records import LARGE_SHAPE, Kernel, targets

Capability = tuple[int, int]


def homes(kernel: Kernel) -> list[str]:
    """The targets of `kernel` ("90a") among the architectures that records speak of, less those that it is refused."""
    every = [target for arch in KNOWN for target in targets(kernel, [str(arch)])]
    return [target for target in every if not kernel.promises.refuses(target)]


def newest_target(kernel: Kernel, toolkit: str, capability: Capability) -> int | None:
    """The architecture for which `toolkit` compiles what a GPU of `capability` runs of `kernel`; None without one."""
    return newest((t for arch in COMPILED[toolkit] for t in targets(kernel, [str(arch)])), capability)


def requirement(kernel: Kernel, capability: Capability) -> str:
    """Needs of `kernel` that a GPU of `capability` lacks, such as "Hopper (sm_90a)"; empty if it runs there."""
    arch, own = "{}{}".format(*capability), kernel.platform
    if not own.targets and capability < own.min_capability:
        return f"compute capability {dotted(own.min_capability)}"
    elsewhere = ""
    if own.targets and not pick_arch((f"sm_{target}" for target in own.targets), capability):
        elsewhere = f"{generations(own.targets)} (sm_{', sm_'.join(own.targets)})"
    if elsewhere and not any(target.isdigit() for target in own.targets):  # instructions of those generations alone
        return elsewhere
    # Asked first, as the generations whose code a card cannot run have cards with as little.
    if (most := most_shared(kernel)) > (limit := shared_limit(arch)):
        return f"{most / 1024:.4g} KiB of shared memory a block, where sm_{arch} has {limit // 1024}"
    if elsewhere:
        return elsewhere
    if kernel.promises.refuses(arch):
        return f"{generations(homes(kernel))} (its compiler refuses sm_{described(arch)})"
    if not any(compiles(toolkit, capability) for toolkit in own.toolkits):
        return f"a toolkit that compiles for sm_{arch}"
    return ""


def most_shared(kernel: Kernel) -> int:
    """The most dynamic shared memory that a launch of `kernel` has, in bytes, on any usual shape."""
    shapes = [*usual_shapes(kernel), *([LARGE_SHAPE] if kernel.takes(LARGE_SHAPE) else [])]
    return max(code.launch(shape).shared_bytes for code in kernel.codes for shape in shapes)


def tally(kernels: Iterable[Kernel], capability: Capability) -> Mapping[str, int]:
    """Number of `kernels` by what they lack on a GPU of `capability`, most first; "" counts those that run there."""
    return dict(Counter(requirement(kernel, capability) for kernel in kernels).most_common())
