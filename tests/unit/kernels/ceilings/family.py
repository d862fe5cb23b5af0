"""Stand-ins for the ceilings: two in fp32, one in bf16, and a copy."""

from gemmrepro.registry import Family, Kernel, Launch

FAMILY = Family(name="ceilings", title="Ceilings", article=None, summary="Stand-ins.")


def _ceiling(name, rung, op="ceiling_flops", **more):
    return Kernel(
        id=f"ceilings.{name}",
        rung=rung,
        title=name,
        source=f"{name}.cu",
        entry=name,
        launch=lambda shape: Launch((1, 1, 1), (128, 1, 1)),
        op=op,
        layout="registers",
        **more,
    )


KERNELS = (
    _ceiling("ffma", "FFMA", baseline=None),
    _ceiling("ffma_rrr", "FFMA from registers", baseline=None),
    _ceiling("wgmma", "WGMMA", baseline=None, dtype_in="bf16"),
    _ceiling("dram_copy", "copy", op="ceiling_bytes", baseline="cuda.memcpy"),
)
