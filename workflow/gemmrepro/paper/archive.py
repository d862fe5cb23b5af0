"""Packs the report into one ZIP file, which holds every page and file in a folder ``report``."""

from __future__ import annotations

import zipfile
from argparse import Namespace
from pathlib import Path

from gemmrepro.core.names import REPORT_FOLDERS, REPORT_PAGES
from gemmrepro.errors import UserError

DATE = (1980, 1, 1, 0, 0, 0)
"""The date of every file in the archive, so that equal reports make equal archives."""


def members(report: Path) -> list[Path]:
    """The files of the report in the folder `report`. Raises UserError if there is none."""
    if not (report / "index.html").is_file():
        raise UserError(f"{report}/index.html is missing; make the report first.")
    inside = [path for name in REPORT_FOLDERS for path in (report / name).rglob("*") if path.is_file()]
    return sorted([*(report / f"{name}.html" for name in REPORT_PAGES), *inside])


def pack(report: Path, out: Path) -> int:
    """Write the archive; returns the number of its files."""
    files = members(report)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            entry = zipfile.ZipInfo(f"report/{path.relative_to(report).as_posix()}", DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes())
    return len(files)


def main(options: Namespace) -> int:
    """Pack the report into a ZIP file."""
    count = pack(options.report, options.out)
    print(f"wrote {options.out}, {options.out.stat().st_size / 1e6:.1f} MB, {count} files")
    return 0
