"""Names of licences as packages write them, as SPDX's identifiers where the two mean the same."""

from __future__ import annotations

import re

SAME = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "Apache-2": "Apache-2.0",
    "BSD-2-clause": "BSD-2-Clause",
    "BSD-3-clause": "BSD-3-Clause",
    "BSD-4-clause": "BSD-4-Clause",
    "Expat": "MIT",
    "MIT License": "MIT",
    "MPL-2": "MPL-2.0",
    "Other/Proprietary License": "LicenseRef-Proprietary",
    "Python Software Foundation License": "PSF-2.0",
    "ZLIB": "Zlib",
    "zlib": "Zlib",
}
"""Names that Debian's machine-readable copyright files and the classifiers of Python's packages use.

Source: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/, section "License short name".
"""

GNU = re.compile(r"(GPL|LGPL|AGPL)-(\d)(\.\d)?(\+?)")


def spdx(name: str) -> str:
    """The identifier of a licence, or the `name` itself where SPDX has none that certainly means the same."""
    gnu = GNU.fullmatch(name)
    if gnu:
        family, major, minor, later = gnu.groups()
        return f"{family}-{major}{minor or '.0'}-{'or-later' if later else 'only'}"
    return SAME.get(name, name)
