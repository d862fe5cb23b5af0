"""A stand-in for a ladder in two types, each source compiled for both."""

from gemmrepro.registry import Code, Compute, Family, Kernel, Launch, Platform, Story, Timing

FAMILY = Family(name="hopper", title="A ladder in bf16", article="ladder", summary="Stand-ins.", figures=("ratio",))

STEPS = "wgmma tiles specialized two_consumers persistent multicast tma_store hilbert".split()


def _kernel(number, name, dtype):
    return Kernel(
        id=f"hopper.{name}" + ("" if dtype == "bf16" else f"_{dtype}"),
        rung=f"H{number}",
        title=name.capitalize(),
        source=f"{number}_{name}.cu",
        compute=Compute(dtype_in=dtype, dtype_out=dtype, layout="row,col,row"),
        code=Code(name, params={"bm": 128, "bn": 256, "bk": 64}),
        launch=lambda shape: Launch((1, 1, 1), (128, 1, 1)),
        platform=Platform(targets=("90a",)),
        timing=Timing(baseline="cublas.gemm"),
        story=Story(
            article="ladder" if number == 1 else None,
            idea=f"What {name} adds.",
            evidence=("sm__pipe_tensor_op_gmma_cycles_active.avg.pct_of_peak_sustained_active", "dram__bytes.sum"),
        ),
    )


KERNELS = tuple(_kernel(n, name, dtype) for n, name in enumerate(STEPS, start=1) for dtype in ("bf16", "fp16"))
