"""What PyTorch's measurements need of our own: one fused pointwise kernel."""

from __future__ import annotations

from gemmrepro.registry import Expect, Family, Kernel, Launch, Shape

FAMILY = Family(
    name="pytorch",
    title="PyTorch: timing, fusion, torch.compile",
    article="gpu-notes",
    summary="How to time a GPU, a pointwise formula as five kernels or as one, and a training step compiled or not: "
    "experiments on PyTorch, beside one kernel by hand.",
)

THREADS = 256
UNROLL = 4


def _gelu(shape: Shape) -> Launch:
    """A block takes 4 * UNROLL * THREADS elements; the first one the last n mod 4 as well."""
    return Launch(grid=(max(1, -(-(shape.n // 4) // (UNROLL * THREADS))), 1, 1), block=(THREADS, 1, 1))


KERNELS = (
    Kernel(
        id="pytorch.gelu",
        rung="fused",
        title="GELU, one kernel",
        source="gelu.cu",
        entry="gelu_fused",
        launch=_gelu,
        op="gelu",
        params={"unroll": UNROLL},
        expects=(
            Expect(r"LDG\.E\.128(\..*)?", "four elements a load", least=UNROLL),
            Expect(r"STG\.E\.128(\..*)?", "four elements a store", least=UNROLL),
            Expect(r"(STL|LDL)(\..*)?", "nothing spills", least=0, most=0),
            Expect(r"(CALL|MUFU\.RCP)(\..*)?", "nothing is divided", least=0, most=0),
        ),
        baseline=None,
        article="gpu-notes",
        idea="The formula in registers: an element is read once and written once.",
        timed=False,
    ),
)
