"""What strangers send runs no code, leaves no folder, and puts no script into the page."""

from __future__ import annotations

import json
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from hostile import ATTACKS, CANARY, SHELL, Attack, tried
from support import ROOT, snakemake
from synthetic import World
from test_report import make

LARGE = ("a member of 300 MB", "100 members", "16 million samples")
"""Attacks whose making takes seconds."""


@pytest.mark.parametrize("attack", [one for one in ATTACKS if not one.name.startswith(LARGE)], ids=lambda one: one.name)
def test_an_attack_has_no_effect(attack: Attack, tmp_path: Path) -> None:
    said = tried(attack, tmp_path / "outer")
    assert not said.startswith("broke:"), said
    assert bool(said) != bool(attack.nothing), said or "it was believed"


def test_a_setting_reaches_the_shell_as_one_argument(tree: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    settings = {"experiments": {"pytorch": {"training": {"modes": [SHELL]}}}}
    mine.write_text(yaml.safe_dump(settings | {"measure": "live", "gpu": {"name": SHELL, "capability": 90}}))
    target = "results/experiments/pytorch/training.csv"
    plan = snakemake("-n", "-p", "--configfile", str(mine), "--", target, folder=tree)
    assert plan.returncode == 0, plan.stdout[-2000:]
    (command,) = re.findall(r"(python3 -m gemmrepro\.experiments\.run .*--name \S*training\b.*)$", plan.stdout, re.M)
    words = shlex.split(command)
    assert json.loads(words[words.index("--settings") + 1])["training"] == {"modes": [SHELL]}
    assert "touch" not in words and not CANARY.exists()


PAYLOAD = "\"'></script></style></title><img src=x onerror=cheat({0})><script>cheat({0})</script><a href=javascript:c>"

FREE = {
    "run.json": ("gpu/name", "gpu/driver", "libraries/cublas", "toolkits/cuda12", "git_commit", "date"),
    "gates": ("why", "check", "expected", "reason", "case", "message", "inputs", "source"),
    "lock": ("env", "base", "builder", "name", "version", "recipe_sha256"),
    "build": ("toolkit_version", "flags", "entry", "registers"),
}
"""Texts of a recording, a verdict, an image and a build that the page prints, by the last part of their place."""


TEXTS = 518
"""How many texts carry a script."""


class Planter:
    """Appends a numbered payload to texts of JSON files."""

    def __init__(self) -> None:
        self.count = 0

    def text(self, old: str) -> str:
        self.count += 1
        return old + PAYLOAD.format(self.count)

    def plant(self, value: Any, wanted: tuple[str, ...], key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self.plant(inner, wanted, f"{key}/{name}" if key else name) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.plant(inner, wanted, key) for inner in value]
        chosen = any(key == name or key.endswith(f"/{name}") for name in wanted)
        return self.text(value) if chosen and isinstance(value, str) else value

    def edit(self, path: Path, wanted: tuple[str, ...]) -> None:
        path.write_text(json.dumps(self.plant(json.loads(path.read_text()), wanted)))


class Reader(HTMLParser):
    """What a browser would run, and the payloads that stand in the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.alarms: list[str] = []
        self.seen: set[int] = set()
        self._script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        # A block of data is not run; what breaks out of it would show as an element.
        self._script = tag in ("script", "style") and dict(attributes).get("type") != "application/ld+json"
        for name, value in attributes:
            if name.startswith("on") or re.match(r"\s*(javascript|vbscript|data:text/html)", value or "", re.I):
                self.alarms.append(f"<{tag} {name}={value}>")
        if tag == "img" and dict(attributes).get("src") == "x":
            self.alarms.append("<img>")

    def handle_endtag(self, tag: str) -> None:
        self._script = False

    def handle_data(self, data: str) -> None:
        found = {int(number) for number in re.findall(r"cheat\((\d+)\)", data)}
        if found and self._script:
            self.alarms.append(f"in a script: {data[:80]}")
        self.seen |= found


def test_no_text_of_a_recording_becomes_a_script(tmp_path: Path) -> None:
    world, planter = World(tmp_path, sizes=(4096,), numeric="failed").write(), Planter()
    for path in world.measure.glob("*/run.json"):
        planter.edit(path, FREE["run.json"])
    for folder, kind in ((world.gates, "gates"), (world.images, "lock")):
        for path in sorted(folder.glob("*.json"))[:12]:
            planter.edit(path, FREE[kind])
    for path in sorted(world.build.glob("*/ladder.*.json"))[:8]:
        planter.edit(path, FREE["build"])
    world.write_sanitizers("ladder.smem", [planter.text("found"), planter.text("SUMMARY: 1 hazard")])
    report = make(world, drawn=False).parent
    seen: set[int] = set()
    for page in report.rglob("*.html"):
        reader = Reader(page.read_text())
        assert reader.alarms == [], page.name
        seen |= reader.seen
    assert planter.count == TEXTS and len(seen) > 400, "payloads must reach the page for this to show anything"
    for script in report.rglob("*.js"):
        text = script.read_text()
        assert not re.search(r"cheat\(", text) or _is_data(text), script.name


def _is_data(text: str) -> bool:
    """Whether a script is a call with one JSON document."""
    call = re.fullmatch(r"\w+\((.*)\);?\s*", text, re.S)
    return bool(call) and json.loads(call[1]) is not None


def test_an_address_is_one_of_the_web() -> None:
    schema = yaml.safe_load((ROOT / "workflow/schemas/references.schema.yaml").read_text())
    pattern = schema["$defs"]["address"]["pattern"]
    assert re.search(pattern, "https://example.org/a") and not re.search(pattern, "javascript:alert(1)")
    assert not re.search(pattern, "https://example.org/ onclick=x")
