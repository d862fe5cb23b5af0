"""A product through torch.compile, beside the same product without it (torch_matmul.py), which is its baseline."""

import torch

KERNEL = {
    "title": "torch.compile",
    "dtype_in": "bf16",
    "layout": "row,col,row",
    "multiple_of": {"n": 8, "k": 8},
    "sizes": [1024, 4096],
    "baseline": "torch_matmul.py",
    # What it compiles allocates memory.
    "graph": False,
}

torch._dynamo.config.recompile_limit = 64  # one for each shape of the gate


@torch.compile(dynamic=False)
def product(a, b, c):
    c.copy_(a @ b.T)


def bind(a, b, c, stream):
    # bfloat16 comes as its bits.
    a, b, c = (torch.from_dlpack(array).view(torch.bfloat16) for array in (a, b, c))
    torch.cuda.set_stream(torch.cuda.ExternalStream(stream))
    return lambda: product(a, b, c)
