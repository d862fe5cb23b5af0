"""The Content-Security-Policy of a page names every script and style that it holds, and nothing else."""

from __future__ import annotations

import base64
import hashlib

import pytest

from gemmrepro.errors import UserError
from gemmrepro.paper.policy import PLACE, policy, secured


def allowed(page: str, name: str) -> list[str]:
    """The sources of a directive."""
    return next(part.split()[1:] for part in policy(page).split("; ") if part.startswith(name))


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_scripts_and_styles_are_allowed_by_their_text():
    page = f"{PLACE}<style>a{{}}</style><svg><style>b &gt; c{{}}</style></svg><script>one()</script>"
    assert allowed(page, "script-src") == ["'strict-dynamic'", digest("one()")]
    assert allowed(page, "style-src") == ["'self'", digest("a{}"), digest("b > c{}")]
    assert allowed(page, "default-src") == ["'none'"]


def test_data_is_no_script():
    assert allowed('<script type="application/ld+json">{}</script>', "script-src") == ["'strict-dynamic'"]


def test_the_policy_stands_in_the_page():
    page = f"<head>{PLACE}</head><script>one()</script>"
    assert digest("one()") in secured(page) and 'content=""' not in secured(page)


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (f'{PLACE}<p class="a" style="color:red">', "style="),
        (f"{PLACE}<img src=x onerror=alert(1)>", "onerror="),
        ("<head></head>", "no place"),
        (PLACE + PLACE, "no place"),
    ],
)
def test_what_no_hash_allows_is_refused(page, words):
    with pytest.raises(UserError, match=words):
        secured(page)
