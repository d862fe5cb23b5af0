"""Checks every claims.yaml, and that the claims cover what the articles print.

python -m gemmrepro check-claims
python -m gemmrepro check-claims --schema      (the schema that a claims.yaml must fit, as YAML)
"""

from __future__ import annotations

from argparse import Namespace

import yaml

from gemmrepro.judge import claims


def main(options: Namespace) -> int:
    """Check the claims; 1 where a published row has none."""
    if options.schema:
        print(yaml.safe_dump(claims.schema(), sort_keys=False, width=120, allow_unicode=True), end="")
        return 0
    loaded = claims.load()
    missing = claims.uncovered(loaded)
    for row in missing:
        print(f"no claim refers to {row['article']}: {row['system']}, {row['metric']}, n {row['n']}")
    print(f"{len(loaded)} claims checked; {len(missing)} published rows without one")
    return 1 if missing else 0
