"""A stand-in for a family with an experiment: two kernels that no sweep times."""

from gemmrepro.registry import Code, Compute, Family, Kernel, Launch, Timing

FAMILY = Family(name="sums", title="Sums", article="ada", summary="Stand-ins.")

KERNELS = tuple(
    Kernel(
        id=f"sums.{name}",
        rung="numerics",
        title=f"Sum kept {name}",
        source="numerics.cu",
        compute=Compute(dtype_in="fp16", layout="row,col,row"),
        code=Code(name),
        launch=lambda shape: Launch((1, 1, 1), (128, 1, 1)),
        timing=Timing(baseline=None, timed=False),
    )
    for name in ("inside", "outside")
)
