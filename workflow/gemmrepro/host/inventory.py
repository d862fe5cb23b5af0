"""Lists the packages inside an image, each with its licence; runs in the image, on Python's library alone.

Debian's licences come from ``/usr/share/doc/<package>/copyright``, or where no machine can read it from what it refers
to in ``/usr/share/common-licenses``; Python's from the packages' metadata.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypedDict


class Entry(TypedDict):
    """A package. `arch` is Debian's, empty for Python's; `licences` are names as the package writes them."""

    name: str
    version: str
    arch: str
    licences: list[str]


UNPACKED = Path("opt/unpacked")
"""Packages whose files were taken without installing them: lines of name and version."""

QUERY = ("dpkg-query", "--show", "--showformat", "${Package} ${Version} ${Architecture}\n")


def debian(listing: str, root: Path = Path("/")) -> list[Entry]:
    """Debian's packages. `listing`: what dpkg-query printed for `QUERY`; `root`: the image's root."""
    unpacked = root / UNPACKED
    lines = listing.splitlines() + (unpacked.read_text().splitlines() if unpacked.exists() else [])
    entries = []
    for name, version, *arch in filter(None, map(str.split, lines)):
        copyright = root / "usr/share/doc" / name / "copyright"
        text = copyright.read_text(errors="replace") if copyright.is_file() else ""
        entries.append(Entry(name=name, version=version, arch="".join(arch), licences=debian_licences(text)))
    return entries


def debian_licences(text: str) -> list[str]:
    """The names of licences in a copyright file of Debian's, sorted."""
    if re.search(r"^Format:", text[:2000], re.MULTILINE):
        found = re.findall(r"^License:[ \t]*(\S.*?)[ \t]*$", text, re.MULTILINE)
    else:
        found = [name.rstrip(".") for name in re.findall(r"/usr/share/common-licenses/([\w.+-]+)", text)]
    return sorted(set(found))


def python(distributions: Iterable[importlib.metadata.Distribution]) -> Iterator[Entry]:
    """Python's packages: the licence expression, else a licence of one line, else the classifiers'."""
    for distribution in distributions:
        metadata = distribution.metadata
        expressions = metadata.get_all("License-Expression") or []
        written = [text for text in metadata.get_all("License") or [] if "\n" not in text and 0 < len(text) <= 60]
        classifiers = metadata.get_all("Classifier") or []
        named = [line.rpartition(" :: ")[2] for line in classifiers if line.startswith("License ::")]
        licences = expressions or written or named
        yield Entry(name=metadata["Name"], version=distribution.version, arch="", licences=licences)


if __name__ == "__main__":
    installed = subprocess.run(QUERY, check=True, capture_output=True, text=True).stdout
    print(json.dumps({"os": debian(installed), "python": list(python(importlib.metadata.distributions()))}))
