"""Stand-ins for the ceilings: two in fp32, one in bf16, and a copy."""

from gemmrepro.registry import Code, Compute, Family, Kernel, Launch, Timing

FAMILY = Family(name="ceilings", title="Ceilings", article=None, summary="Stand-ins.")


def _ceiling(name, rung, op="ceiling_flops", baseline=None, dtype="fp32"):
    return Kernel(
        id=f"ceilings.{name}",
        rung=rung,
        title=name,
        source=f"{name}.cu",
        compute=Compute(op, dtype_in=dtype, layout="registers"),
        code=Code(name),
        launch=lambda shape: Launch((1, 1, 1), (128, 1, 1)),
        timing=Timing(baseline),
    )


KERNELS = (
    _ceiling("ffma", "FFMA"),
    _ceiling("ffma_rrr", "FFMA from registers"),
    _ceiling("wgmma", "WGMMA", dtype="bf16"),
    _ceiling("dram_copy", "copy", op="ceiling_bytes", baseline="cuda.memcpy"),
)
