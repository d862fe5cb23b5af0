"""The Content-Security-Policy of a page: it runs the project's scripts, by hash, and loads nothing from elsewhere.

The policy stands in a ``<meta>``, since a page that is opened from disk has no headers. The project's own scripts are
allowed by the SHA-256 of their texts, and so are the files that they load (``'strict-dynamic'``); no other script runs,
whatever the page holds. Styles are those of the folder, and those in the page by their hashes.
Source: https://www.w3.org/TR/CSP3/.
"""

from __future__ import annotations

import hashlib
import html
import re
from base64 import b64encode

from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError

PLACE = '<meta http-equiv="Content-Security-Policy" content="">'
"""Where a template leaves room for the policy: before any script or style."""

LOADER = (
    'document.head.append(Object.assign(document.createElement("script"),'
    '{src:document.documentElement.dataset.root+"assets/paper.js"}))'
)
"""The script in every page but the paper: it loads the one beside them."""

PAPER = ROOT / "reports/template/paper.js"
"""The script in the paper."""

_SCRIPT = re.compile(r"<script\b([^>]*)>(.*?)</script\b[^>]*>", re.DOTALL | re.IGNORECASE)
_DATA = ' type="application/ld+json"'
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_SVG = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
_OTHER = r"""\s+(?!style=|on[a-z]+=)[^\s=<>"']+(?:=(?:"[^"]*"|'[^']*'|[^\s<>"']+))?"""
_ATTRIBUTE = re.compile(rf"<[a-zA-Z][\w-]*(?:{_OTHER})*\s+(style|on[a-z]+)=")
"""An attribute of a tag, and not what the value of another one says."""


def sha256(text: str) -> str:
    """The source expression of a policy that allows an inline script or style with this text."""
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def tidy(text: str) -> str:
    """A page, or a part of one, without blank lines and blanks at the ends of lines."""
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip()) + "\n"


def own_scripts() -> tuple[str, str]:
    """The texts of the scripts that a page may have: the loader, and the paper's as index.html.j2 has it."""
    return LOADER, f"\n{tidy(PAPER.read_text())}"


def policy(page: str) -> str:
    """The policy of a page, which allows those of the project's own scripts that are in it."""
    held = _scripts(page)
    scripts = [script for script in own_scripts() if script in held]
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


def _scripts(page: str) -> set[str]:
    """The texts of what a browser would run."""
    return {text for kind, text in _SCRIPT.findall(page) if kind != _DATA}


def secured(page: str) -> str:
    """The page with its policy.

    Raises:
        UserError: the page has no PLACE for it, a script of others, or an attribute that no hash can allow.
    """
    if foreign := _scripts(page) - set(own_scripts()):
        start = " ".join(min(foreign).split())[:60]
        raise UserError(f"the page has a script that is not the project's ({start}); mend what it was made from.")
    if found := _ATTRIBUTE.search(_SCRIPT.sub("", page)):
        raise UserError(f"the page has an attribute {found[1]}=, which its policy forbids; use a class or a listener.")
    if page.count(PLACE) != 1:
        raise UserError("the page has no place for its Content-Security-Policy; mend base.html.j2.")
    return page.replace(PLACE, PLACE.replace('content=""', f'content="{policy(page)}"'))
