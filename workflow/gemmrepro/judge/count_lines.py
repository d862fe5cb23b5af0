"""Counts lines of code.

python -m gemmrepro.judge.count_lines kernels/cute/4_three_stages.cu kernels/cute/dsl_three_stages.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

from gemmrepro.errors import run_stage
from gemmrepro.judge.source_lines import of_file


def main() -> int:
    parser = argparse.ArgumentParser(prog="gemmrepro.judge.count_lines", description="Count lines of code.")
    parser.add_argument("sources", nargs="+", type=Path)
    for path in parser.parse_args().sources:
        print(f"{of_file(path):5}  {path}")
    return 0


if __name__ == "__main__":
    run_stage(main)
