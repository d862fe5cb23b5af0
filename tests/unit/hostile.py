"""What a stranger sends: recordings, bundles, claims, names and configurations that attack whoever reads them.

Each attack has a channel and tries to run code, to leave its folder, or to use up memory or time. It holds if it is
refused in one sentence, or does nothing; whatever it does, the file named in CANARY must not appear, and nothing may be
written outside of its own folder. Scripts in the page are tried in tests/unit/test_hostile.py, forged bundles in
`fakes.py`.
"""

from __future__ import annotations

import io
import json
import signal
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from support import ROOT

from gemmrepro import registry
from gemmrepro.build import cache
from gemmrepro.core.journal import Journal
from gemmrepro.errors import UserError
from gemmrepro.host import config
from gemmrepro.judge import claims, expressions
from gemmrepro.recordings import compare
from gemmrepro.recordings.bundles import read_bundle
from gemmrepro.recordings.sweeps import read_samples
from gemmrepro.registry import families

CANARY = Path(tempfile.gettempdir()) / "gemmrepro-was-here"
SECONDS, PATIENCE = 20, 300
"""CPU time that an attack may take of its reader, and time altogether: other work on the machine is no attack."""


@dataclass(frozen=True)
class Attack:
    """`run` hands the attack to its reader, in a folder of its own; `nothing` if the reader need not refuse it."""

    channel: str
    name: str
    run: Callable[[Path], object]
    nothing: str = ""


LIMITS = ((signal.ITIMER_PROF, signal.SIGPROF, SECONDS), (signal.ITIMER_REAL, signal.SIGALRM, PATIENCE))


@contextmanager
def _limited() -> Iterator[None]:
    def stop(number: int, _: object) -> None:
        raise TimeoutError(f"longer than allowed ({signal.Signals(number).name})")

    before = [signal.signal(number, stop) for _, number, _ in LIMITS]
    for timer, _, seconds in LIMITS:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (timer, number, _), handler in zip(LIMITS, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def tried(attack: Attack, outer: Path) -> str:
    """The refusal of an attack in the project's words, or ""; it begins with "broke:" where something was left."""
    inner = outer / "inner"
    inner.mkdir(parents=True)
    CANARY.unlink(missing_ok=True)
    try:
        with _limited():
            attack.run(inner)
        said = ""
    except UserError as error:
        said = str(error) if "\n" not in str(error) else f"broke: several lines: {error}"
    except Exception as error:
        said = f"broke: {type(error).__name__}: {error}"
    if CANARY.exists() or [path for path in outer.iterdir() if path != inner]:
        said = "broke: it ran, or wrote outside of its folder"
    return said


def _zip(*members: tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return buffer.getvalue()


def _bundle(data: bytes) -> Callable[[Path], object]:
    def run(folder: Path) -> object:
        (folder / "b.zip").write_bytes(data)
        return read_bundle(folder / "b.zip")

    return run


def _lying() -> bytes:
    """300 MB that say they are 10 bytes."""
    data = _zip(("ladder/summary.csv", bytes(300 << 20)))
    size = struct.pack("<I", 300 << 20)
    return data.replace(size, struct.pack("<I", 10))


def _overlapping() -> bytes:
    """Many entries of the directory that all name one member's data."""
    data = _zip(("ladder/summary.csv", bytes(200 << 20)))
    start = data.index(b"PK\x01\x02")
    end = data.index(b"PK\x05\x06")
    entry = data[start:end]
    tail = bytearray(data[end:])
    struct.pack_into("<HHI", tail, 8, 100, 100, 100 * len(entry))
    return data[:start] + 100 * entry + bytes(tail)


def _parquet(rows: int) -> Callable[[Path], object]:
    """A file of kilobytes that holds `rows` equal samples."""

    def run(folder: Path) -> object:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from gemmrepro.measure.columns import SAMPLE_COLUMNS

        texts, numbers = ("kernel", "toolkit", "dtype", "cache", "build_key"), ("time_us", "baseline_us")
        kinds = {n: pa.string() if n in texts else pa.float64() if n in numbers else pa.int64() for n in SAMPLE_COLUMNS}
        schema = pa.schema(list(kinds.items()))
        part = 1 << 20
        values = {n: pa.array(["x" if n in texts else 1.0 if n in numbers else 1] * part, kinds[n]) for n in kinds}
        table = pa.table(values, schema=schema)
        with pq.ParquetWriter(folder / "samples.parquet", schema, compression="zstd") as writer:
            for _ in range(rows // part):
                writer.write_table(table)
        return read_samples(folder / "samples.parquet")

    return run


def _claims(**changes: Any) -> Callable[[Path], object]:
    """A genuine file of claims whose first claim is changed."""

    def run(folder: Path) -> object:
        document = yaml.safe_load((ROOT / "kernels/ladder/claims.yaml").read_text())
        document["claims"][0] |= changes
        (folder / "claims.yaml").write_text(yaml.safe_dump(document))
        loaded = claims.load_file(folder / "claims.yaml", "ladder")
        return [claim.statement for claim in loaded]

    return run


def _yaml(text: str) -> Callable[[Path], object]:
    def run(folder: Path) -> object:
        (folder / "claims.yaml").write_text(text)
        return claims.load_file(folder / "claims.yaml", "ladder")

    return run


def _settings(path: str, value: Any) -> Callable[[Path], object]:
    def run(folder: Path) -> object:
        document = yaml.safe_load((ROOT / "config/config.yaml").read_text())
        *outer, last = path.split("/")
        inner = document
        for part in outer:
            inner = inner.setdefault(part, {})
        inner[last] = value
        return config.check(document)

    return run


def _expression(text: str) -> Callable[[Path], object]:
    def run(folder: Path) -> object:
        try:
            return expressions.evaluate(text, {"value": 1.0})
        except ValueError as error:
            raise UserError(" ".join(str(error).split())) from None

    return run


def _winner(value: Any) -> Callable[[Path], object]:
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
    letters = folder / "letters/2001"
    letters.parent.mkdir()
    letters.write_text("dear")
    (folder / "ab").mkdir()
    (folder / "ab/thesis").write_text("a thesis")
    cache.Cache(folder, 0).trim()
    if not letters.exists() or not (folder / "ab/thesis").exists():
        raise RuntimeError("it deleted files that it had not made")


def _cache_entry(name: str) -> Callable[[Path], object]:
    """An entry of a shared cache that names a file outside of the build's folder."""

    def run(folder: Path) -> object:
        key, packed = "ab" * 8, zlib.compress(json.dumps([[name, 1]]).encode() + b"\nx")
        (folder / "ab").mkdir()
        (folder / "ab" / key).write_bytes(cache._digest(key, packed).encode() + b"\n" + packed)
        found = cache.Cache(folder, 1 << 20).get(key) or {}
        if set(found) == {".fatbin", ".sass", ".json"}:
            raise RuntimeError("it would be used")
        return None

    return run


def _journal(folder: Path) -> object:
    """A point's name that is a path."""
    return Journal(folder / "journal", {}, print).get("../../../../etc/passwd", {})


def _kernel(name: str) -> Callable[[Path], object]:
    return lambda folder: registry.kernel(name)


def _compared(text: str) -> Callable[[Path], object]:
    return lambda folder: compare.side_of(text, folder)


CODE = f"__import__('pathlib').Path('{CANARY}').touch()"
SHELL = f"'; touch {CANARY}; '"
BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))

PASSED = "it is passed on as one argument or variable; tests/unit/test_hostile.py looks at the commands"

ATTACKS = (
    Attack("bundle", "a member of 300 MB that says it is of 10 bytes", _bundle(_lying())),
    Attack("bundle", "100 members over the same 200 MB", _bundle(_overlapping())),
    Attack("bundle", "a name with a NUL", _bundle(_zip(("ladder/summary.csv\0.py", b"")))),
    Attack("bundle", "a name with full-width dots", _bundle(_zip(("ladder/\uff0e\uff0e/summary.csv", b"")))),
    Attack("bundle", "a folder that is a pipe's place", _bundle(_zip(("/dev/stdout", b"")))),
    Attack("recording", "16 million samples in a small file", _parquet(16 << 20)),
    Attack("claims", "a YAML tag that calls", _yaml(f"!!python/object/apply:os.system ['touch {CANARY}']")),
    Attack("claims", "aliases of aliases, 10^11 nodes", _yaml(BOMB)),
    Attack("claims", "100,000 brackets", _yaml("[" * 100_000)),
    Attack("claims", "a statement that reads an attribute", _claims(statement="{value.__class__.__mro__}")),
    Attack("claims", "a statement of 10 GB by its format", _claims(statement="{value:>10000000000}")),
    Attack("claims", "a statement that fills in nested fields", _claims(statement="{value:{value}}")),
    Attack("claims", "a metric that is a path", _claims(compute={"metric": "../../../x"})),
    Attack("expression", "a call", _expression(CODE)),
    Attack("expression", "an attribute", _expression("value.__class__")),
    Attack("expression", "a tower of powers", _expression("9**9**9**9**9")),
    Attack("expression", "an integer that fills memory", _expression("2**99999999999")),
    Attack("expression", "200 parentheses", _expression("(" * 190 + "1" + ")" * 190), nothing="it is 1"),
    Attack(
        "configuration", "a setting of an experiment", _settings("experiments/pytorch/training/modes", [SHELL]), PASSED
    ),
    Attack("configuration", "a folder of recordings", _settings("recorded_gpu", "../../etc")),
    Attack("configuration", "a GPU of tuned constants", _settings("tuned_gpu", f"$(touch {CANARY})")),
    Attack("configuration", "a GPU's name", _settings("gpu", {"name": SHELL, "capability": 90}), PASSED),
    Attack("configuration", "a family", _settings("families", ["../../x"])),
    Attack("configuration", "a family's sizes", _settings(f"sweep/sizes/{SHELL}".replace("/tmp/", "-tmp-"), [1024])),
    Attack("cache", "somebody else's folder as the cache", _foreign_files, nothing="only entries are removed"),
    Attack("cache", "an entry with a path", _cache_entry("../../x"), nothing="it is no entry of a build"),
    Attack("tuned constants", "code in a definition", _winner('128); asm("trap;"')),
    Attack("tuned constants", "an option", _winner("-include=/etc/passwd")),
    Attack("name", "a kernel with a command", _kernel(f"ladder.naive; touch {CANARY}")),
    Attack("name", "a kernel with a line's end", _kernel("ladder.naive\n")),
    Attack("name", "a journal's entry that is a path", _journal, nothing="it holds no entry"),
    Attack("name", "an option of git as a commit", _compared("--output=/tmp/x:reports")),
    Attack("name", "git's transport as a commit", _compared(f"ext::sh -c touch% {CANARY}:x")),
)
