"""cuTile's kernels by version of the compiler: the committed table is today's, and how it is made and shown."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gemmrepro import registry
from gemmrepro.build import cutile, sass, versions
from gemmrepro.build.key import build_key
from gemmrepro.errors import UserError
from gemmrepro.paper.discussion.compilers import Compilers
from gemmrepro.paper.discussion.sources import Sources

KERNELS = registry.kernels("cutile")
ROWS = versions.read(versions.path_of("cutile"))
GOLDEN = json.loads((Path(__file__).parent / "data/golden_keys.json").read_text())["kernels"]
MADE = {(row.kernel, row.entry, row.compiler): row for row in ROWS}


def test_the_table_holds_every_entry_point_of_todays_sources_by_every_version():
    """Of kernels as written; what a search finds is compiled with all versions where the package index is."""
    expected = {
        (kernel.id, code.code.entry, version): build_key(kernel, version, versions.installed(version))
        for kernel in KERNELS
        if not kernel.name.endswith("_tuned")
        for code in kernel.codes
        for version in versions.VERSIONS
    }
    assert {place: row.build_key for place, row in MADE.items() if not place[0].endswith("_tuned")} == expected
    image = versions.locked("nvidia-cuda-tileiras")
    assert all(
        row.build_key == GOLDEN[row.kernel]["cuda13"]
        for row in versions.current("cutile", ROWS)
        if row.compiler == image
    )


def test_rows_of_other_sources_or_kernels_are_not_shown():
    rows = [ROWS[0], replace(ROWS[1], build_key="0"), replace(ROWS[2], kernel="cutile.gone")]
    assert versions.current("cutile", rows) == [ROWS[0]]


def test_a_row_has_its_numbers_or_a_refusal():
    for row in ROWS:
        numbers = [getattr(row, name) for name in versions.COLUMNS[versions.COLUMNS.index("registers") :]]
        assert all(number is None for number in numbers) if row.error else None not in numbers
    refused = {(row.kernel, row.compiler) for row in ROWS if row.error}
    early = {kernel.id for kernel in KERNELS if "grid_dependency" in kernel.source_path.read_text()}
    assert refused == {(kernel, "13.3.36") for kernel in early}
    assert all("requires tileiras 13.4 or later" in row.error for row in ROWS if row.error)


def test_what_the_notes_say_of_versions_is_in_the_table():
    persistent = [row for row in ROWS if row.kernel.startswith("cutile.persistent_") and row.kernel[-5:] != "_bf16"]
    assert persistent
    for row in persistent:
        first = row.compiler == "13.3.36"
        assert bool(row.spill_bytes) == first and (row.waits == row.tensor) == first
    same = [replace(MADE[row.kernel, row.entry, "13.4.92"], compiler="", build_key="") for row in ROWS]
    for row, other in zip(ROWS, same, strict=True):
        assert row.compiler != "13.4.59" or replace(row, compiler="", build_key="") == other
    promoted = {row.compiler: row for row in ROWS if row.kernel == "cutile.promoted_fp8_e4m3"}
    assert promoted["13.4.92"].waits == 4 and promoted["13.5.37"].waits == promoted["13.5.37"].tensor == 32
    fp64 = {row.compiler: row.spill_bytes for row in ROWS if row.kernel == "cutile.matmul_fp64"}
    assert fp64["13.5.37"] < fp64["13.4.92"] / 5


LISTING = """\
	code for sm_90a
		Function : matmul
        /*0000*/                   UTMALDG.2D [UR12], [UR28], desc[URZ] ;
        /*0010*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR12].tnspB, R24, gsb0 ;
        /*0020*/                   WARPGROUP.DEPBAR.LE gsb0, 0x1 ;
        /*0030*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ;
        /*0040*/                   EXIT ;
"""


def test_waits_and_what_they_leave_in_flight_are_read_from_the_listing():
    (function,) = sass.parse(LISTING)
    assert versions.counted(function) == {"tensor": 1, "loads": 1, "waits": 2, "in_flight": 1}


@pytest.fixture
def compiled(monkeypatch) -> list[str]:
    """Entry points that were compiled; the compiler refuses transposing."""
    seen: list[str] = []

    def attempts(code, archs, threads, folder, python):
        seen.append(f"{python} {code.code.entry}")
        cubin = folder / "sm_90.cubin"
        cubin.write_bytes(b"machine code")
        return {"90": (None, "NoError: not this one\n  place\n") if code.code.entry == "turn" else (cubin, "")}

    monkeypatch.setattr(cutile, "attempts", attempts)
    monkeypatch.setattr(versions, "assemble", lambda images, part: part.write_bytes(images["90"].read_bytes()))
    monkeypatch.setattr(versions, "_facts", lambda entry, part: dict.fromkeys(versions.COLUMNS[5:], 1))
    return seen


def test_kernels_are_compiled_once_and_refusals_are_kept(tmp_path, compiled):
    some = [registry.kernel(f"cutile.{name}") for name in ("matmul_bf16", "pairs_bf16", "turned_int8")]
    rows = versions.compile_all(some, "13.5.37", Path("py"), tmp_path, 2)
    assert sorted(compiled) == [f"py {name}" for name in ("full_waves", "last_wave", "matmul", "multiply", "turn")]
    assert [row.error for row in rows if row.entry == "turn"] == ["NoError: not this one"]
    assert versions.binary(tmp_path, some[1], "13.5.37").read_bytes() == b"machine code" * 2
    assert not versions.binary(tmp_path, some[2], "13.5.37").exists()
    table = tmp_path / "compilers.csv"
    table.write_text(versions.text(rows))
    assert versions.read(table) == rows
    assert versions.compile_all(some, "13.5.37", Path("py"), tmp_path, 1, rows) == rows and len(compiled) == 5
    stale = [replace(row, build_key="0") if row.entry == "matmul" else row for row in rows]
    assert versions.compile_all(some, "13.5.37", Path("py"), tmp_path, 1, stale) == rows and compiled[5:] == [
        "py matmul"
    ]


def test_the_command_writes_the_familys_table_in_the_order_of_its_kernels(tmp_path, compiled, monkeypatch):
    monkeypatch.setattr(versions, "path_of", lambda family: tmp_path / f"{family}.csv")
    monkeypatch.setattr(versions, "environment", lambda version, folder: folder / version)
    monkeypatch.setattr(versions, "kernels_of", lambda family: list(KERNELS[:3]))
    options = ["--versions", "13.3.36,13.5.37", "--environments", str(tmp_path), "--binaries", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["versions", *options])
    assert versions.main() == 0
    rows = versions.read(tmp_path / "cutile.csv")
    assert [(row.kernel, row.compiler) for row in rows] == [
        (kernel.id, version) for kernel in KERNELS[:3] for version in ("13.3.36", "13.5.37")
    ]
    (tmp_path / "cutile.csv").write_text("kernel,entry\na,b\n")
    with pytest.raises(UserError, match=r"cutile\.csv is corrupt"):
        versions.read(tmp_path / "cutile.csv")


def test_a_binary_is_told_from_that_of_other_sources_by_its_name(tmp_path, monkeypatch):
    kernel = KERNELS[1]
    before = versions.binary(tmp_path, kernel, "13.5.37")
    assert before.parent.name == "13.5.37" and versions.key_of(kernel, "13.5.37") in before.name
    monkeypatch.setattr(versions, "build_key", lambda *known: "another")
    assert versions.binary(tmp_path, kernel, "13.5.37") != before


def test_only_families_with_kernels_in_cutile_have_versions_to_compare():
    with pytest.raises(UserError, match="family ladder has no kernels in cuTile"):
        versions.kernels_of("ladder")
    assert {kernel.family for kernel in versions.kernels_of("cutile")} == {"cutile"}


def test_the_page_shows_every_entry_point_and_marks_spills_and_waits():
    page = Compilers(Sources("cutile", {}))
    table = str(page.table())
    entries = {(row.kernel, row.entry) for row in versions.current("cutile", ROWS)}
    assert table.count("<tr><th") == len(entries) and "pairs_bf16, last_wave" in table
    spilling = MADE["cutile.persistent_bf16_tuned", "persistent", "13.3.36"]
    assert f"255 + {spilling.spill_bytes}, 193, {spilling.instructions} \N{DAGGER}" in table
    assert "128, 113, 950 *" in table and table.count("refused") == sum(bool(row.error) for row in ROWS)
    assert page.differing("13.4.59", "13.4.92").value == 0 and (page.differing("13.4.92", "13.5.37").value or 0) > 20
    assert (
        not Compilers(Sources("ladder", {})).table() and not Compilers(Sources("ladder", {})).differing("a", "b").known
    )
