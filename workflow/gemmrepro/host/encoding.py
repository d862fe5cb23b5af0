"""How this process reads text: the project's files are UTF-8."""

from __future__ import annotations

import codecs
import locale

from gemmrepro.errors import UserError


def check_encoding(name: str | None = None) -> None:
    """Raises UserError if text is read as anything but UTF-8; `name` is the encoding, the process's own by default."""
    name = name or locale.getpreferredencoding(False)
    if codecs.lookup(name).name != "utf-8":
        raise UserError(
            f"this shell reads text as {name}, and the project's files are UTF-8; run `export LC_ALL=C.UTF-8`, or put "
            "`envs/run` before the command."
        )
