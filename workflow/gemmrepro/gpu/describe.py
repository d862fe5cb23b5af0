"""Describe this machine's GPU.

python -m gemmrepro gpu            prints the GPU as JSON; exits 1 with the reason if none can be used
python -m gemmrepro gpu --slug     prints the name of its recordings ("h200")
"""

from __future__ import annotations

import json
from argparse import Namespace

from gemmrepro.gpu.device import open_gpu


def main(options: Namespace) -> int:
    """Print the GPU."""
    gpu = open_gpu().gpu
    print(gpu.slug if options.slug else json.dumps({**gpu.describe(), "slug": gpu.slug}, indent=2))
    return 0
