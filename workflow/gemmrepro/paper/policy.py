"""The Content-Security-Policy of a page: it runs its own script, by hash, and asks for nothing outside its folder.

The policy stands in a ``<meta>``, since a page that is opened from disk has no headers. A script that is in the page is
allowed by the SHA-256 of its text, and so are the files that it loads (``'strict-dynamic'``); no other script runs,
wherever in the page it stands. Styles are those of the folder, and those in the page by their hashes.
Source: https://www.w3.org/TR/CSP3/.
"""

from __future__ import annotations

import hashlib
import html
import re
from base64 import b64encode

from gemmrepro.errors import UserError

PLACE = '<meta http-equiv="Content-Security-Policy" content="">'
"""Where a template leaves room for the policy: before any script or style."""

_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_SVG = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
_OTHER = r"""\s+(?!style=|on[a-z]+=)[^\s=<>"']+(?:=(?:"[^"]*"|'[^']*'|[^\s<>"']+))?"""
_ATTRIBUTE = re.compile(rf"<[a-zA-Z][\w-]*(?:{_OTHER})*\s+(style|on[a-z]+)=")
"""An attribute of a tag, and not what the value of another one says."""


def sha256(text: str) -> str:
    """The source expression of a policy that allows an inline script or style with this text."""
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def policy(page: str) -> str:
    """The policy of a page, by the scripts and styles that it holds."""
    scripts = _SCRIPT.findall(page)
    drawn = "".join(_SVG.findall(page))
    # In SVG the text of a style is markup like any other; in HTML it is taken as it stands.
    styles = [*_STYLE.findall(_SVG.sub("", page)), *map(html.unescape, _STYLE.findall(drawn))]
    allowed = {
        "default-src": ["'none'"],
        "script-src": ["'strict-dynamic'", *dict.fromkeys(map(sha256, scripts))],
        "style-src": ["'self'", *dict.fromkeys(map(sha256, styles))],
        "img-src": ["data:"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
    }
    return "; ".join(f"{name} {' '.join(sources)}" for name, sources in allowed.items())


def secured(page: str) -> str:
    """The page with its policy.

    Raises:
        UserError: the page has no PLACE for it, or an attribute that a policy cannot allow by its hash.
    """
    if found := _ATTRIBUTE.search(_SCRIPT.sub("", page)):
        raise UserError(f"the page has an attribute {found[1]}=, which its policy forbids; use a class or a listener.")
    if page.count(PLACE) != 1:
        raise UserError("the page has no place for its Content-Security-Policy; mend base.html.j2.")
    return page.replace(PLACE, PLACE.replace('content=""', f'content="{policy(page)}"'))
