"""Judges every claim from measurement rows: ``results/verdicts.json``.

    python -m gemmrepro.judge.verdicts --measure results/measure --gates results/gates --build results/build \\
        --out results/verdicts.json

`gemmrepro.judge.rules` defines the verdicts, `gemmrepro.judge.metrics` the vocabulary of claims.yaml; the report prints
both.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from gemmrepro.core.files import write_json
from gemmrepro.errors import run_stage
from gemmrepro.judge.judging import judge_all


def main() -> int:
    parser = argparse.ArgumentParser(description="Judge every claim from the measurement rows.")
    parser.add_argument("--measure", type=Path, required=True, help="folder with one folder of rows per family")
    parser.add_argument("--gates", type=Path, required=True, help="folder with one gate verdict per kernel")
    parser.add_argument("--build", type=Path, required=True, help="folder with the build records")
    parser.add_argument("--families", help="only these, separated by commas; default: all with a claims.yaml")
    parser.add_argument("--experiments", type=Path, help="folder with one folder of experiments per family")
    parser.add_argument("--regimes", type=Path, help="folder with one folder of rows of the regimes per family")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    families = tuple(arguments.families.split(",")) if arguments.families else None
    folders = (arguments.measure, arguments.gates, arguments.build)
    judged = judge_all(*folders, families, experiments_dir=arguments.experiments, regimes_dir=arguments.regimes)
    write_json(arguments.out, judged.as_json())
    width = max((len(entry.claim.id) for entry in judged.entries), default=0)
    for entry in judged.entries:
        print(f"{entry.claim.id:<{width}}  {entry.verdict}")
    return 0


if __name__ == "__main__":
    run_stage(main, collect=False)
