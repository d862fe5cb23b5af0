"""Ways of faking a bundle. Each takes a genuine bundle's members and returns the bytes of a fake."""

from __future__ import annotations

import io
import json
import re
import stat
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gemmrepro.measure.recording import digest
from gemmrepro.recordings.bundles import INDEX

Members = dict[str, bytes]
Fake = Callable[[Members], bytes]


@dataclass(frozen=True)
class BundleFake:
    """One way of faking a bundle."""

    name: str
    make: Fake


def packed(members: Mapping[str, bytes], **fields: int) -> bytes:
    """A zip of these members; `fields` are set in each entry."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            for field, value in fields.items():
                setattr(entry, field, value)
            archive.writestr(entry, data)
    return buffer.getvalue()


def listed(members: Members, **index: object) -> Members:
    """The members with an index that fits them, but for the fields of `index`."""
    files = {name: digest(data) for name, data in members.items() if name != INDEX}
    old = json.loads(members[INDEX])
    return {**members, INDEX: json.dumps({**old, "files": files, **index}).encode()}


def added(name: str, data: bytes = b"x") -> Fake:
    return lambda members: packed(listed({**members, name: data}))


def replaced(suffix: str, change: Callable[[bytes], bytes], **index: object) -> Fake:
    """The first member with this ending changed, and the index with it."""

    def make(members: Members) -> bytes:
        name = next(name for name in sorted(members) if name.endswith(suffix) and name != INDEX)
        return packed(listed({**members, name: change(members[name])}, **index))

    return make


def _link(members: Members) -> bytes:
    buffer = io.BytesIO(packed(listed({**members, "memory/run.json": b"/etc/passwd"})))
    with zipfile.ZipFile(buffer) as archive:
        contents = [(entry, archive.read(entry)) for entry in archive.infolist()]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for entry, data in contents:
            if entry.filename == "memory/run.json":
                entry.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(entry, data)
    return out.getvalue()


def _twice(members: Members) -> bytes:
    import warnings

    buffer = io.BytesIO(packed(members))
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("ceilings/run.json", b"{}")
    return buffer.getvalue()


def _bomb(members: Members) -> bytes:
    return packed(listed({**members, "memory/summary.csv": bytes(300 << 20)}))


def _many(members: Members) -> bytes:
    return packed(listed({**members, **{f"ceilings/experiments/e{i}.csv": b"" for i in range(2001)}}))


def _flipped(members: Members) -> bytes:
    data = bytearray(packed(members))
    data[len(data) // 2] ^= 0xFF
    return bytes(data)


def _encrypted(members: Members) -> bytes:
    """The flag of encryption set in every entry of the directory."""
    data = bytearray(packed(members))
    place = data.find(b"PK\x01\x02")
    while place >= 0:
        data[place + 8] |= 1
        place = data.find(b"PK\x01\x02", place + 4)
    return bytes(data)


def _of(change: Callable[[dict[str, object]], object], name: str) -> Fake:
    def edit(data: bytes) -> bytes:
        document = json.loads(data)
        change(document)
        return json.dumps(document).encode()

    return replaced(name, edit)


def _without_ceilings(members: Members) -> bytes:
    return packed(listed({name: data for name, data in members.items() if not name.startswith("ceilings/")}))


def _unlisted(members: Members) -> bytes:
    return packed({**members, "ceilings/experiments/more.csv": b"x"})


def _edited_rows(data: bytes) -> bytes:
    lines = data.decode().split("\n")
    cells = lines[1].split(",")
    cells[11:14] = [f"{0.5 * float(cell):.6g}" for cell in cells[11:14]]
    return "\n".join([lines[0], ",".join(cells), *lines[2:]]).encode()


def _pickled(data: bytes) -> bytes:
    import pickle

    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (eval, ("__import__('pathlib').Path('/tmp/gemmrepro-was-here').write_text('ran')",))

    return pickle.dumps(Evil())


FAKES = (
    BundleFake("no zip", lambda members: b"PK nothing"),
    BundleFake("empty", lambda members: b""),
    BundleFake("zip cut short", lambda members: packed(members)[:-200]),
    BundleFake("one byte flipped", _flipped),
    BundleFake("encrypted", _encrypted),
    BundleFake("path that leaves the folder", added("../../evil.py")),
    BundleFake("path that leaves a family's folder", added("ceilings/../../evil.json")),
    BundleFake("absolute path", added("/tmp/evil.json")),
    BundleFake("path with a backslash", added("..\\evil.json")),
    BundleFake("path with a newline", added("ceilings/run.json\n")),
    BundleFake("a program beside the rows", added("ceilings/family.py", b"print('ran')")),
    BundleFake("a folder entry", added("ceilings/", b"")),
    BundleFake("a symbolic link", _link),
    BundleFake("a member twice", _twice),
    BundleFake("a member that unfolds into 300 MB", _bomb),
    BundleFake("2,001 members", _many),
    BundleFake("a member that is not listed", _unlisted),
    BundleFake("no index", lambda members: packed({n: d for n, d in members.items() if n != INDEX})),
    BundleFake("index without hashes", lambda members: packed(listed(members, files={}))),
    BundleFake("hash of another file", lambda members: packed({**members, "ceilings/summary.csv": b"kernel\n"})),
    BundleFake("index of another version", lambda members: packed(listed(members, version=2))),
    BundleFake("GPU renamed in the index", lambda members: packed(listed(members, gpu="NVIDIA B200"))),
    BundleFake("GPU's name a path", lambda members: packed(listed(members, gpu="../../../etc"))),
    BundleFake("GPU renamed in one family", _of(lambda run: run["gpu"].update(name="NVIDIA B200"), "run.json")),
    BundleFake("an unknown family", added("nothing/run.json", b"{}")),
    BundleFake("no ceilings", _without_ceilings),
    BundleFake("times halved in a row", replaced("summary.csv", _edited_rows)),
    BundleFake("samples as a pickle", replaced("samples.parquet", _pickled)),
    BundleFake("samples cut short", replaced("samples.parquet", lambda data: data[:-40])),
    BundleFake("JSON nested 100,000 deep", replaced("run.json", lambda data: b"[" * 100_000)),
    BundleFake("JSON with NaN", replaced("run.json", lambda data: data.replace(b"700.0", b"NaN"))),
    BundleFake("JSON with a key twice", replaced("run.json", lambda d: d.replace(b"{", b'{"source": "live", ', 1))),
    BundleFake("a number of a million digits", replaced("run.json", lambda d: d.replace(b"132", b"1" * 1_000_000))),
    BundleFake("control characters in a CSV", replaced("summary.csv", lambda data: data.replace(b"FFMA", b"\x1b[2J"))),
    BundleFake(
        "a script in a CSV", replaced("summary.csv", lambda d: d.replace(b",FFMA,", b",<script>1</script>,", 1))
    ),
    BundleFake(
        "rows of an unknown binary",
        replaced("summary.csv", lambda d: re.sub(rb",[0-9a-f]{16},", b",%s," % (b"0" * 16), d)),
    ),
    BundleFake("an experiment that is not declared", added("ceilings/experiments/nothing.json", b'{"gpu": null}')),
)
