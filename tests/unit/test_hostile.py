"""What strangers send runs no code, leaves no folder, uses up no memory, and puts no script into the page.

An attack must be refused in one sentence, or do nothing; CANARY must not appear, and nothing outside of its own folder.
Forged bundles are in `test_bundles.py`, expressions in `test_ways.py`.
"""

import json
import re
import shlex
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import ROOT, snakemake
from synthetic import World
from test_report import make

from gemmrepro import registry
from gemmrepro.build import cache
from gemmrepro.errors import UserError
from gemmrepro.host import config
from gemmrepro.judge import claims
from gemmrepro.recordings import compare
from gemmrepro.registry import articles, families

Attack = Callable[[Path], object]
"""Hands itself to its reader, in a folder of its own."""
CANARY = Path(tempfile.gettempdir()) / "gemmrepro-was-here"
SECONDS = 20
"""CPU time that an attack may take of its reader."""


@contextmanager
def _limited() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(f"longer than {SECONDS} s of CPU time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def tried(attack: Attack, outer: Path) -> str:
    """The refusal of an attack in the project's words, or ""; it begins with "broke:" where something was left."""
    inner = outer / "inner"
    inner.mkdir(parents=True)
    CANARY.unlink(missing_ok=True)
    try:
        with _limited():
            attack(inner)
        said = ""
    except UserError as error:
        said = str(error) if "\n" not in str(error) else f"broke: several lines: {error}"
    except Exception as error:
        said = f"broke: {type(error).__name__}: {error}"
    if CANARY.exists() or [path for path in outer.iterdir() if path != inner]:
        said = "broke: it ran, or wrote outside of its folder"
    return said


def _yaml(text: str) -> Attack:
    def run(folder: Path) -> object:
        (folder / "claims.yaml").write_text(text)
        return [claim.statement for claim in claims.load_file(folder / "claims.yaml", "ladder")]

    return run


def _claims(**changes: Any) -> Attack:
    """A genuine file of claims whose first claim is changed."""
    document = articles.document_of(ROOT / "articles/ladder/claims.yaml")
    first, *rest = document["claims"]
    return _yaml(yaml.safe_dump({**document, "claims": [{**first, **changes}, *rest]}))


def _settings(path: str, value: Any) -> Attack:
    def run(folder: Path) -> object:
        document = yaml.safe_load((ROOT / "config/config.yaml").read_text())
        *outer, last = path.split("/")
        inner = document
        for part in outer:
            inner = inner.setdefault(part, {})
        inner[last] = value
        return config.check(document)

    return run


def _winner(value: Any) -> Attack:
    """Tuned constants, which become definitions on the compiler's command line."""

    def run(folder: Path) -> object:
        tunable = next(one for one in registry.tunables("ladder") if one.id == "ladder.warptile_tuned")
        known = json.loads(families.winners_path("ladder").read_text())
        first = next(iter(known[tunable.id]["params"]))
        known[tunable.id]["params"][first] = value
        (folder / "tuned.json").write_text(json.dumps(known))
        before, families.winners_path = families.winners_path, lambda *_: folder / "tuned.json"
        try:
            return families.tuned(tunable)
        finally:
            families.winners_path = before

    return run


def _foreign_files(folder: Path) -> None:
    """A configuration that names somebody's folder as the cache of builds: it must not be tidied up."""
    (folder / "ab").mkdir()
    (folder / "ab/thesis").write_text("a thesis")
    cache.Cache(folder, 0).trim()
    if not (folder / "ab/thesis").exists():
        raise RuntimeError("it deleted a file that it had not made")


SHELL = f"'; touch {CANARY}; '"
BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))

ATTACKS: dict[str, Attack] = {
    "a YAML tag that calls": _yaml(f"!!python/object/apply:os.system ['touch {CANARY}']"),
    "aliases of aliases, 10^11 nodes": _yaml(BOMB),
    "a statement that reads an attribute": _claims(statement="{value.__class__.__mro__}"),
    "a statement of 10 GB by its format": _claims(statement="{value:>10000000000}"),
    "a metric that is a path": _claims(compute={"metric": "../../../x"}),
    "a command in a setting of an experiment": _settings("experiments/pytorch/training/modes", [SHELL]),
    "code in a tuned constant": _winner('128); asm("trap;"'),
    "a kernel's name with a command": lambda _: registry.kernel(f"ladder.naive; touch {CANARY}"),
    "an option of git as a commit": lambda folder: compare.side_of("--output=/tmp/x:reports", folder),
    "git's transport as a commit": lambda folder: compare.side_of(f"ext::sh -c touch% {CANARY}:x", folder),
}
HARMLESS: dict[str, Attack] = {
    "a command in a GPU's name": _settings("gpu", {"name": SHELL, "capability": 90}),
    "somebody else's folder as the cache": _foreign_files,
}
"""What need not be refused: it does nothing. A GPU's name is passed on as one argument, see the next test."""


@pytest.mark.parametrize("name", [*ATTACKS, *HARMLESS])
def test_an_attack_has_no_effect(name: str, tmp_path: Path) -> None:
    said = tried((ATTACKS | HARMLESS)[name], tmp_path / "outer")
    assert not said.startswith("broke:"), said
    assert bool(said) == (name in ATTACKS), said or "it was believed"


def test_a_setting_reaches_the_shell_as_one_argument(tree: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    settings = {"experiments": {"pytorch": {"training": {"modes": ["default", "eager"]}}}}
    mine.write_text(yaml.safe_dump(settings | {"measure": "live", "gpu": {"name": SHELL, "capability": 90}}))
    target = "results/experiments/pytorch/training.csv"
    plan = snakemake("-n", "-p", "--configfile", str(mine), "--", target, folder=tree)
    assert plan.returncode == 0, plan.stdout[-2000:]
    (command,) = re.findall(r"(python3 -m gemmrepro experiments .*--name \S*training\b.*)$", plan.stdout, re.M)
    words = shlex.split(command)
    assert json.loads(words[words.index("--settings") + 1])["training"] == {"modes": ["default", "eager"]}
    assert "touch" not in words and not CANARY.exists()


PAYLOAD = "\"'></script></style></title><img src=x onerror=cheat({0})><script>cheat({0})</script><a href=javascript:c>"


class Planter:
    """Appends a numbered payload to texts of JSON files."""

    def __init__(self) -> None:
        self.count = 0

    def text(self, old: str) -> str:
        self.count += 1
        return old + PAYLOAD.format(self.count)

    def plant(self, value: Any, wanted: tuple[str, ...], key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self.plant(inner, wanted, f"{key}/{name}") for name, inner in value.items()}
        if isinstance(value, list):
            return [self.plant(inner, wanted, key) for inner in value]
        chosen = key.endswith(tuple(f"/{name}" for name in wanted))
        return self.text(value) if chosen and isinstance(value, str) else value

    def edit(self, paths: Iterable[Path], *wanted: str) -> None:
        for path in paths:
            path.write_text(json.dumps(self.plant(json.loads(path.read_text()), wanted)))


def test_no_text_of_a_recording_becomes_a_script(tmp_path: Path) -> None:
    world, planter = World(tmp_path, sizes=(4096,), numeric="failed").write(), Planter()
    run = ("gpu/name", "gpu/driver", "libraries/cublas", "toolkits/cuda12", "git_commit", "date")
    planter.edit(world.measure.glob("*/run.json"), *run)
    gates = ("why", "check", "expected", "reason", "case", "message", "inputs", "source")
    planter.edit(sorted(world.gates.glob("*.json"))[:12], *gates)
    lock = ("env", "base", "builder", "name", "version", "recipe_sha256")
    planter.edit(world.images.glob("*.json"), *lock)
    builds = sorted(world.build.glob("*/ladder.*.json"))[:8]
    planter.edit(builds, "toolkit_version", "flags", "entry", "registers")
    world.write_sanitizers("ladder.smem", [planter.text("found"), planter.text("SUMMARY: 1 hazard")])
    report = make(world, drawn=False).parent
    seen: set[str] = set()
    for page in report.rglob("*.html"):
        text = page.read_text()
        # What ends an attribute or an element of the page stands escaped in text, attributes and blocks of data.
        assert not re.search(r"<(img src=x|script>cheat|a href=javascript)|\"'>", text), page.name
        seen |= set(re.findall(r"cheat\((\d+)\)", text))
    assert planter.count > 500 and len(seen) > 400, "payloads must reach the page for this to show anything"
    for script in report.rglob("*.js"):
        text = script.read_text()
        data = re.fullmatch(r"\w+\((.*)\);?\s*", text, re.S)
        assert "cheat(" not in text or json.loads(data[1]) is not None, f"{script.name} is no call with one document"
