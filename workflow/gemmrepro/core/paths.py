"""Where the repository keeps things."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

KERNELS_DIR = ROOT / "kernels"
"""One folder per family."""

SCHEMAS = ROOT / "workflow" / "schemas"
"""JSON schemas, written as YAML."""

ARTICLES_DIR = ROOT / "articles"
"""One folder per article: what it prints and states."""

RECORDINGS = ROOT / "reports" / "recorded"
"""Committed measurements, one folder per GPU."""


def shown(path: Path) -> str:
    """`path` for records and messages: relative to the repository's root, or only its name if it is outside."""
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
