"""Describe this machine's GPU.

python -m gemmrepro.gpu.describe            prints the GPU as JSON; exits 1 with the reason if none can be used
python -m gemmrepro.gpu.describe --slug     prints the name of its recordings ("h200")
"""

from __future__ import annotations

import argparse
import json

from gemmrepro.errors import run_stage
from gemmrepro.gpu.device import open_gpu


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gemmrepro.gpu.describe", description="Describe the GPU at hand.")
    parser.add_argument("--slug", action="store_true", help="print only the name of its recordings")
    arguments = parser.parse_args()
    gpu = open_gpu().gpu
    print(gpu.slug if arguments.slug else json.dumps({**gpu.describe(), "slug": gpu.slug}, indent=2))
    return 0


if __name__ == "__main__":
    run_stage(main)
