"""Print how far the recorded takes of families agree, on one card and from card to card, as JSON.

python -m gemmrepro.recordings.cards --families hopper,crt --recorded reports/recorded/h200
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from gemmrepro.errors import UserError, run_stage
from gemmrepro.measure.regimes.places import takes
from gemmrepro.measure.regimes.spread import Take, summary
from gemmrepro.recordings.regimes import read_take


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m gemmrepro.recordings.cards", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--families", required=True, help="comma-separated")
    parser.add_argument("--recorded", type=Path, required=True, help="a GPU's folder under reports/recorded")
    parser.add_argument("--build", type=Path, default=Path("results/build"))
    arguments = parser.parse_args()
    for family in arguments.families.split(","):
        read = [read_take(family, folder, arguments.build) for folder in takes(arguments.recorded, family)]
        if not read:
            raise UserError(f"{arguments.recorded} has no take of {family}; record one with record --regimes.")
        print(json.dumps({family: summary([Take.of(take.run, take.rows) for take in read])}, indent=2))
    return 0


if __name__ == "__main__":
    run_stage(main)
