"""Against PyTorch, as in the article: kernels compared with the call that a PyTorch user would write.

The sweep compares with the fastest algorithm that cuBLAS offers. PyTorch takes the one that cuBLAS's heuristic ranks
first: mm (TF32 allowed, for fp32), _int_mm for 8-bit integers, _scaled_mm for 8-bit floats, with fast accumulation
for a kernel that has it. Both multiply the same random matrices, alternately, warm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gemmrepro.experiments import Column, Experiment, with_interval

KERNELS = (
    "cutile.persistent_fp16",
    "cutile.persistent_fp16_tuned",
    "cutile.tail_fp16",
    "cutile.matmul_bf16_tuned",
    "cutile.persistent_bf16",
    "cutile.persistent_bf16_tuned",
    "cutile.tail_bf16",
    "cutile.k_major_bf16_tuned",
    "cutile.matmul_tf32_tuned",
    "cutile.turned_tf32",
    "cutile.persistent_tf32",
    "cutile.persistent_tf32_tuned",
    "cutile.matmul_int8_tuned",
    "cutile.persistent_int8",
    "cutile.persistent_int8_tuned",
    "cutile.k_major_fp8_e4m3_wide",
    "cutile.k_major_fp8_e4m3_tuned",
    "cutile.persistent_fp8_e4m3_fast",
    "cutile.persistent_fp8_e4m3_fast_tuned",
)
"""The fastest kernels of each type and layout, as written and, where there was a search, as tuned."""
DIFFERENCE = 0.02
"""As a share of the largest result: correct products in the coarsest type differ by less, wrong ones by more."""


def points(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"kernel": kernel, "n": n} for kernel in parameters["kernels"] for n in parameters["sizes"]]


def pytorch(kernel: Any, n: int, inputs: Any, stream: int) -> tuple[Any, Callable[[], None]]:
    """PyTorch's own product of two CuPy arrays: the tensor that it writes, and a function that multiplies once."""
    import cupy
    import torch

    kinds = {"tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "int8": torch.int8}
    kind = kinds.get(kernel.compute.dtype_in, torch.float8_e4m3fn)
    plain = {1: cupy.int8, 2: cupy.int16, 4: cupy.float32}
    a, b = (torch.from_dlpack(x.view(plain[x.dtype.itemsize])).view(kind).reshape(n, n) for x in inputs)
    b = b.t() if kernel.compute.layout == "row,col,row" else b
    wide = {"int8": torch.int32, "fp8_e4m3": torch.float16}.get(kernel.compute.dtype_in, kind)
    out = torch.empty((n, n), dtype=wide, device=a.device)
    one = torch.ones((), device=a.device)
    external = torch.cuda.ExternalStream(stream)
    torch.backends.cuda.matmul.allow_tf32 = True

    def call() -> None:
        with torch.cuda.stream(external):
            if kernel.compute.dtype_in == "int8":
                torch._int_mm(a, b, out=out)
            elif kernel.compute.dtype_in == "fp8_e4m3":
                fast = bool(kernel.params.get("fast"))
                torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=wide, use_fast_accum=fast, out=out)
            else:
                torch.mm(a, b, out=out)

    torch.cuda.synchronize()  # the tensors above were made on another stream
    return out, call


def measure(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One kernel at one size."""
    subject = next((subject for subject in context.subjects if subject.kernel == point["kernel"]), None)
    if subject is None or not any(subject.kernel == "torch.mm" for subject in context.subjects):
        return
    import cupy
    import torch

    from gemmrepro import operands, stats, timing
    from gemmrepro.errors import UserError
    from gemmrepro.operations import Shape

    kernel, n, session = context.kernel(subject), point["n"], context.session
    shape = Shape.cube(n)
    inputs, output = operands.random(kernel.problem, shape, n)
    session.sync()
    ours = context.bind(subject, operands.Operands.of(kernel, shape, inputs, output))
    written, theirs = pytorch(kernel, n, inputs, session.stream.ptr)
    ours(), theirs()
    session.sync()
    mine = torch.from_dlpack(output.view({2: cupy.int16, 4: cupy.int32}[output.dtype.itemsize])).view(written.dtype)
    mine, other = mine.reshape(n, n)[:512].double(), written[:512].double()
    if not float((mine - other).abs().max()) <= DIFFERENCE * float(other.abs().max()):
        raise UserError(f"{kernel.id} and PyTorch multiply the same matrices of {n} to different products.")
    timer = timing.Timer(session)
    estimates = [timer.estimate(call, timer.once(call)) for call in (ours, theirs)]
    plan = timing.Plan(interval=0.005, seconds=context.parameters["seconds"], least=5, most=100)
    burst = timer.burst([ours], [theirs], "warm", plan, tuple(estimates), False)
    ratio = stats.ratio_interval([burst.baseline], [burst.times])
    speeds = [2 * n**3 / stats.rounds_interval([times]).value * 1e-6 for times in (burst.times, burst.baseline)]
    cells = {
        "dtype": kernel.compute.dtype_in,
        "layout": kernel.compute.layout,
        "n": n,
        "tflops": speeds[0],
        "pytorch": speeds[1],
    }
    yield context.row(subject, **cells, ratio=ratio.value, low=ratio.low, high=ratio.high)


LARGEST = ("cutile.published_fp16", "cutile.published_fp8_e5m2")
"""The article's kernels in the types of its first two tables, whose last row is larger than the sweep."""


def largest(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One kernel at one size, beside PyTorch's product where PyTorch has one."""
    import cupy

    from gemmrepro import operands, stats, timing
    from gemmrepro.operations import Shape

    subject = next((subject for subject in context.subjects if subject.kernel == point["kernel"]), None)
    if subject is None:
        return
    kernel, n, session = context.kernel(subject), point["n"], context.session
    shape = Shape.cube(n)
    inputs, output = operands.random(kernel.problem, shape, n)
    ours = context.bind(subject, operands.Operands.of(kernel, shape, inputs, output))
    known = kernel.compute.dtype_in != "fp8_e5m2" and any(each.kernel == "torch.mm" for each in context.subjects)
    theirs = pytorch(kernel, n, inputs, session.stream.ptr)[1] if known else None
    timer, count = timing.Timer(session), context.settings["pairs"]
    for call in filter(None, (ours, theirs)):
        timer.once(call)
    times = [(timer.once(ours), timer.once(theirs) if theirs else None) for _ in range(count)]
    cells: dict[str, Any] = dict.fromkeys(("pytorch", "ratio", "low", "high"))
    if theirs:
        ratio = stats.median_interval([other / mine for mine, other in times if other])
        speed = 2 * n**3 / stats.median_interval([other for _, other in times if other]).value * 1e-6
        cells = {"pytorch": speed, "ratio": ratio.value, "low": ratio.low, "high": ratio.high}
    mine = stats.median_interval([mine for mine, _ in times])
    yield context.row(subject, dtype=kernel.compute.dtype_in, n=n, tflops=2 * n**3 / mine.value * 1e-6, **cells)
    cupy.get_default_memory_pool().free_all_blocks()


def products_of(kind: Any) -> Mapping[str, Callable[[Any, Any], Any]]:
    """PyTorch's products of two matrices of 8-bit floats, by the name of the call; `kind` of the second is e4m3."""
    import torch

    one = torch.ones((), device="cuda")

    def scaled(a: Any, b: Any) -> Any:
        return torch._scaled_mm(a, b.t().contiguous().t(), scale_a=one, scale_b=one, out_dtype=torch.float16)

    return {
        "a @ b": lambda a, b: a @ b,
        "torch._scaled_mm(a, b)": scaled,
        "torch._scaled_mm(a, b in e4m3)": lambda a, b: scaled(a, b.to(torch.float16).to(kind)),
    }


CALLS = ("a @ b", "torch._scaled_mm(a, b)", "torch._scaled_mm(a, b in e4m3)")


def calls(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"call": call, "n": parameters["n"]} for call in parameters["calls"]]


def refusal(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One call: whether PyTorch refuses it, and its reason."""
    import torch

    n = point["n"]
    a, b = (torch.randn(n, n, device="cuda").to(torch.float16).to(torch.float8_e5m2) for _ in range(2))
    try:
        products_of(torch.float8_e4m3fn)[point["call"]](a, b)
        torch.cuda.synchronize()
        error = None
    except (RuntimeError, NotImplementedError, ValueError) as raised:
        error = " ".join(str(raised).split())[:200]
    for subject in context.subjects:
        yield context.row(subject, call=point["call"], n=n, refused=int(error is not None), error=error)


EXPERIMENTS = (
    Experiment(
        name="largest",
        title="The last row of the article's tables",
        question="How fast are the article's kernels at 32768, beside PyTorch's own product where there is one?",
        kernels=LARGEST,
        libraries=("torch.mm",),
        columns=(
            Column("dtype", "type of A and B", kind="text"),
            Column("n", "M = N = K", kind="integer"),
            Column("tflops", "throughput of the kernel", "TFLOP/s"),
            Column("pytorch", "throughput of PyTorch's call; empty: it has none", "TFLOP/s"),
            *with_interval(Column("ratio", "speed relative to PyTorch", low="low", high="high")),
        ),
        points=points,
        measure=largest,
        parameters={"kernels": list(LARGEST), "sizes": [32768]},
        settings={"pairs": 9},
    ),
    Experiment(
        name="e5m2",
        title="Does PyTorch multiply e5m2?",
        question="Which of PyTorch's products take two matrices of 8-bit floats in e5m2?",
        kernels=(),
        libraries=("torch.mm",),
        columns=(
            Column("call", "the product; a and b are e5m2 unless it says otherwise", kind="text"),
            Column("n", "M = N = K", kind="integer"),
            Column("refused", "1: PyTorch refuses it", kind="integer"),
            Column("error", "its reason", kind="text"),
        ),
        points=calls,
        measure=refusal,
        parameters={"calls": list(CALLS), "n": 256},
    ),
    Experiment(
        name="pytorch",
        title="Compared with PyTorch's own calls",
        question="How fast are the kernels compared with PyTorch's own call for the same product in the same layout?",
        kernels=KERNELS,
        libraries=("torch.mm",),
        columns=(
            Column("dtype", "type of A and B", kind="text"),
            Column("layout", "layout of A, B and C", kind="text"),
            Column("n", "M = N = K", kind="integer"),
            Column("tflops", "throughput of the kernel", "TFLOP/s"),
            Column("pytorch", "throughput of PyTorch's call", "TFLOP/s"),
            *with_interval(Column("ratio", "speed relative to PyTorch", low="low", high="high")),
        ),
        points=points,
        measure=measure,
        parameters={"kernels": list(KERNELS), "sizes": [4096, 8192], "seconds": 0.06},
    ),
)
