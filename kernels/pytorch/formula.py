"""The article's GELU, as PyTorch code: what is run eagerly, scripted and compiled.

In a file of its own, loaded anew for every measurement: torch.jit.script keeps what it compiled by function object.
"""

import torch


def gelu(x: torch.Tensor) -> torch.Tensor:
    """x/2 (1 + erf(x / 1.41421)): five operations, each of which is a pass over memory when it runs on its own."""
    return x * 0.5 * (1.0 + torch.erf(x / 1.41421))
