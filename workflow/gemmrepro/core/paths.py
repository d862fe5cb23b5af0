"""Where the repository keeps things."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
"""The repository's root folder."""

KERNELS_DIR = ROOT / "kernels"
"""One folder per family."""

SCHEMAS = ROOT / "workflow" / "schemas"
"""JSON schemas, written as YAML."""

ARTICLES_DIR = ROOT / "articles"
"""One folder per article: what it prints and states."""

RECORDINGS = ROOT / "reports" / "recorded"
"""Committed measurements, one folder per GPU."""
