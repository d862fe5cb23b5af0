"""The pages that the tests open, and how they wait for them."""

from __future__ import annotations

from pathlib import Path

KINDS = ("paper", "claims", "family", "kernel", "baseline")


def kinds(report: Path) -> dict[str, Path]:
    """A page of each of the KINDS."""
    return {
        "paper": report / "index.html",
        "claims": report / "claims.html",
        "family": report / "families/ladder.html",
        "kernel": report / "kernels/ladder.smem.html",
        "baseline": report / "baselines/cublas.sgemm.html",
    }


def opened(page, path: Path, fragment: str = ""):
    """The page at `path`, loaded anew."""
    page.get("about:blank")
    page.get(path.as_uri() + (f"#{fragment}" if fragment else ""))
    return page


def waited(page, condition: str) -> None:
    """Wait until a condition in JavaScript holds."""
    page.execute_async_script(
        f"const done = arguments[0]; const wait = () => ({condition}) ? done() : setTimeout(wait, 20); wait()"
    )
