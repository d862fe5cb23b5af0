"""A persistent GEMM in Triton: as many programs as there are SMs, each of which walks over tiles of C."""

import torch
import triton
import triton.language as tl

KERNEL = {
    "title": "Triton, persistent",
    "dtype_in": "fp16",
    "dtype_out": "fp16",
    "layout": "row,row,row",
    "multiple_of": {"n": 8, "k": 8},
    "sizes": [1024, 4096, 8192],
}

M, N, K, GROUP = 128, 256, 64, 8


@triton.jit
def persistent(
    a, b, c, m, n, k, PROGRAMS: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr
):
    rows, columns = tl.cdiv(m, M), tl.cdiv(n, N)
    for tile in tl.range(tl.program_id(0), rows * columns, PROGRAMS, flatten=True):
        first = tile // (GROUP * columns) * GROUP
        high = min(rows - first, GROUP)
        row = first + tile % (GROUP * columns) % high
        column = tile % (GROUP * columns) // high
        i, j = row * M + tl.arange(0, M), column * N + tl.arange(0, N)
        total = tl.zeros((M, N), dtype=tl.float32)
        for start in range(0, k, K):
            p = start + tl.arange(0, K)
            left = tl.load(a + i[:, None] * k + p[None, :], mask=(i[:, None] < m) & (p[None, :] < k), other=0.0)
            right = tl.load(b + p[:, None] * n + j[None, :], mask=(p[:, None] < k) & (j[None, :] < n), other=0.0)
            total = tl.dot(left, right, total)
        tl.store(c + i[:, None] * n + j[None, :], total.to(tl.float16), mask=(i[:, None] < m) & (j[None, :] < n))


def bind(a, b, c, stream):
    a, b, c = map(torch.from_dlpack, (a, b, c))
    programs = torch.cuda.get_device_properties(0).multi_processor_count
    shape, tiles = (a.shape[0], b.shape[1], a.shape[1]), {"M": M, "N": N, "K": K, "GROUP": GROUP}
    # Triton launches on PyTorch's current stream.
    torch.cuda.set_stream(torch.cuda.ExternalStream(stream))

    def launch():
        persistent[(programs,)](a, b, c, *shape, PROGRAMS=programs, **tiles, num_warps=8, num_stages=3)

    return launch
