"""Judges every claim from measurement rows: ``results/verdicts.json``.

    python -m gemmrepro verdicts --measure results/measure --gates results/gates --build results/build \\
        --out results/verdicts.json

`gemmrepro.judge.rules` defines the verdicts, `gemmrepro.judge.metrics` the vocabulary of claims.yaml.
"""

from __future__ import annotations

from argparse import Namespace

from gemmrepro.core.files import write_json
from gemmrepro.judge.judging import judge_all


def main(options: Namespace) -> int:
    families = tuple(options.families.split(",")) if options.families else None
    folders = (options.measure, options.gates, options.build)
    judged = judge_all(*folders, families, experiments_dir=options.experiments, regimes_dir=options.regimes)
    write_json(options.out, judged)
    width = max((len(entry["id"]) for entry in judged["claims"]), default=0)
    for entry in judged["claims"]:
        print(f"{entry['id']:<{width}}  {entry['verdict']}")
    return 0
