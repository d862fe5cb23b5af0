"""The Content-Security-Policy of a page names every script and style that it holds, and nothing else."""

import base64
import hashlib

import pytest

from gemmrepro.errors import UserError
from gemmrepro.paper.bundle import LOADER, PLACE, policy, secured


def allowed(page: str, name: str) -> list[str]:
    """The sources of a directive."""
    return next(part.split()[1:] for part in policy(page).split("; ") if part.startswith(name))


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_scripts_and_styles_are_allowed_by_their_text():
    page = f"{PLACE}<style>a{{}}</style><svg><style>b &gt; c{{}}</style></svg><script>{LOADER}</script>"
    assert allowed(page, "script-src") == ["'strict-dynamic'", digest(LOADER)]
    assert allowed(page, "style-src") == ["'self'", digest("a{}"), digest("b > c{}")]
    assert allowed(page, "default-src") == ["'none'"]
    assert digest(LOADER) in secured(page) and 'content=""' not in secured(page)


@pytest.mark.parametrize(
    "element", ["<script>one()</script>", "<svg><SCRIPT >one()</script ></svg>", "<script src=x></script>"]
)
def test_no_script_of_others_is_allowed(element):
    assert allowed(PLACE + element, "script-src") == ["'strict-dynamic'"]
    with pytest.raises(UserError, match="a script that is not the project's"):
        secured(PLACE + element)


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (f'{PLACE}<p class="a" style="color:red">', "style="),
        (PLACE + PLACE, "no place"),
    ],
)
def test_what_no_hash_allows_is_refused(page, words):
    with pytest.raises(UserError, match=words):
        secured(page)
