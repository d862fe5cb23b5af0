"""The one kernel of our own that the PyTorch experiments need: a fused pointwise formula."""

from __future__ import annotations

from collections.abc import Callable

from gemmrepro.operations import Shape
from gemmrepro.registry import (
    Code,
    Compute,
    Expect,
    Family,
    Kernel,
    Launch,
    Promises,
    Story,
    Timing,
)

FAMILY = Family(
    name="pytorch",
    title="PyTorch: timing, fusion, torch.compile",
    article="gpu-notes",
    summary="How to time a GPU, a pointwise formula as five kernels or as one, and a training step compiled or not: "
    "experiments on PyTorch, and one hand-written kernel.",
)

THREADS = 256
UNROLL = 1


def _gelu(unroll: int) -> Callable[[Shape], Launch]:
    """A block takes 4 * unroll * THREADS elements; the first block also the last n mod 4."""

    def launch(shape: Shape) -> Launch:
        return Launch(grid=(max(1, -(-(shape.n // 4) // (unroll * THREADS))), 1, 1), block=(THREADS, 1, 1))

    return launch


def _kernel(name: str, rung: str, title: str, unroll: int, idea: str) -> Kernel:
    return Kernel(
        id=f"pytorch.{name}",
        rung=rung,
        title=title,
        source="gelu.cu",
        compute=Compute(op="gelu"),
        code=Code(
            "gelu_fused", params={"unroll": unroll}, defines={} if unroll == UNROLL else {"UNROLL_LOADS": str(unroll)}
        ),
        launch=_gelu(unroll),
        promises=Promises(
            expects=(
                Expect(r"LDG\.E\.128(\..*)?", "four elements per load", least=unroll),
                Expect(r"STG\.E\.128(\..*)?", "four elements per store", least=unroll),
                Expect(r"(STL|LDL)(\..*)?", "nothing spills", least=0, most=0),
                Expect(r"(CALL|MUFU\.RCP)(\..*)?", "there is no division", least=0, most=0),
            )
        ),
        timing=Timing(baseline=None, timed=False),
        story=Story(article="gpu-notes", idea=idea),
    )


KERNELS = (
    _kernel(
        "gelu",
        "fused",
        "GELU, one kernel",
        UNROLL,
        "The formula in registers: an element is read once and written once.",
    ),
    _kernel("gelu_two", "two loads", "GELU, two loads per thread", 2, "Half as many blocks, each twice as long."),
    _kernel("gelu_four", "four loads", "GELU, four loads per thread", 4, "16 KB per block in flight."),
)
