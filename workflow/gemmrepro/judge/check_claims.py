"""Checks every claims.yaml, and that the claims cover what the articles print.

python -m gemmrepro.judge.check_claims
python -m gemmrepro.judge.check_claims --schema      (the schema that a claims.yaml must fit, as YAML)
"""

from __future__ import annotations

import argparse

import yaml

from gemmrepro.errors import run_stage
from gemmrepro.judge import claims


def main() -> int:
    parser = argparse.ArgumentParser(description="Check every claims.yaml, and that it covers its article.")
    parser.add_argument("--schema", action="store_true", help="print the schema of a claims.yaml instead")
    if parser.parse_args().schema:
        print(yaml.safe_dump(claims.schema(), sort_keys=False, width=120, allow_unicode=True), end="")
        return 0
    loaded = claims.load()
    missing = claims.uncovered(loaded)
    for row in missing:
        print(f"no claim refers to {row['article']}: {row['system']}, {row['metric']}, n {row['n']}")
    print(f"{len(loaded)} claims checked; {len(missing)} published rows without one")
    return 1 if missing else 0


if __name__ == "__main__":
    run_stage(main)
