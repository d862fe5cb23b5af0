"""Outputs that a power cut, a full disk or a hand changed after their job: found and marked, or harmless."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gemmrepro.host.finished_outputs import NAME, FinishedOutputs
from gemmrepro.host.sif import HEADER

BEFORE, AFTER = "the boot of the run", "the boot after it"
TEXT = b'{"a": [1, 2, 3]}\n' * 50
ROWS, SVG, PAGE = "results/measure/ladder/summary.csv", "results/figures/ladder/a.svg", "reports/kernels"


def mark(folder: Path, kind: str, name: str) -> Path:
    """Snakemake's file about an output."""
    return folder / ".snakemake" / kind / base64.urlsafe_b64encode(name.encode()).decode()


def finish(folder: Path, name: str, data: bytes = TEXT) -> None:
    """Leave an output and Snakemake's record of it, as a finished job does."""
    path = folder / name
    if name == PAGE:
        path = path / "naive.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    record = mark(folder, "metadata", name)
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps({"rule": "measure", "incomplete": False}))


def outputs(folder: Path, boot: str = BEFORE) -> FinishedOutputs:
    return FinishedOutputs(folder / ".snakemake", boot)


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder after a run whose guard noted its three outputs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".snakemake/incomplete").mkdir(parents=True)
    run = outputs(tmp_path)
    assert run.check() == []
    for name in (ROWS, SVG, PAGE):
        finish(tmp_path, name)
    run.add()
    return tmp_path


def flipped(data: bytes) -> bytes:
    return data[:100] + bytes([data[100] ^ 1]) + data[101:]


def longer(data: bytes) -> bytes:
    return data + data


def emptied(data: bytes) -> bytes:
    return b""


def halved(data: bytes) -> bytes:
    return data[: len(data) // 2]


def zeros(data: bytes) -> bytes:
    return bytes(len(data))


DAMAGE = (emptied, halved, zeros, flipped, longer)


@pytest.mark.parametrize("name", [ROWS, f"{PAGE}/naive.html"])
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("boot", [BEFORE, AFTER])
def test_a_damaged_output_is_named_once_and_made_again(
    finished: Path, damage: Callable[[bytes], bytes], name: str, boot: str
) -> None:
    path = finished / name
    path.write_bytes(damage(path.read_bytes()))
    said = [sentence for sentence in outputs(finished, boot).check() if "restarted" not in sentence]
    assert len(said) == 1 and name in said[0] and said[0].endswith("it is made again.")
    assert mark(finished, "incomplete", PAGE if PAGE in name else ROWS).exists()
    assert not mark(finished, "incomplete", SVG).exists()
    assert outputs(finished, boot).check() == []


def test_untouched_outputs_are_right(finished: Path) -> None:
    assert outputs(finished).check() == []
    assert list((finished / ".snakemake/incomplete").iterdir()) == []


def test_after_a_restart_content_counts_where_size_and_time_agree(finished: Path) -> None:
    path = finished / ROWS
    status = path.stat()
    path.write_bytes(zeros(path.read_bytes()))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert outputs(finished).check() == []  # what a power cut does, and no editor
    restarted, differs = outputs(finished, AFTER).check()
    assert "restarted" in restarted and ROWS in differs


def test_what_was_made_just_before_a_power_cut_is_made_again(finished: Path) -> None:
    finish(finished, "results/verdicts.json", b"")
    said = outputs(finished, AFTER).check()
    assert any("results/verdicts.json was made just before the machine stopped" in sentence for sentence in said)
    assert mark(finished, "incomplete", "results/verdicts.json").exists()


def test_what_a_killed_guard_did_not_note_is_taken_as_it_is(finished: Path) -> None:
    finish(finished, "results/verdicts.json")
    assert outputs(finished).check() == []
    (finished / "results/verdicts.json").write_bytes(b"")
    assert "results/verdicts.json was cut short, to 0 of 850 bytes" in outputs(finished).check()[0]


def test_a_file_that_a_power_cut_took_is_made_again_and_a_deleted_one_is_not(finished: Path) -> None:
    (finished / ROWS).unlink()
    assert outputs(finished).check() == []
    (finished / SVG).unlink()
    mark(finished, "metadata", SVG).unlink()
    said = outputs(finished, AFTER).check()
    assert f"{SVG} was lost when the machine stopped; it is made again." in said
    assert mark(finished, "incomplete", SVG).exists() and not mark(finished, "incomplete", ROWS).exists()


@pytest.mark.parametrize("damage", [emptied, halved, zeros])
def test_a_damaged_record_of_snakemakes_has_the_output_made_again(
    finished: Path, damage: Callable[[bytes], bytes]
) -> None:
    record = mark(finished, "metadata", ROWS)
    record.write_bytes(damage(record.read_bytes()))
    assert outputs(finished).check() == [f"Snakemake's record of {ROWS} is damaged; it is made again."]
    assert mark(finished, "incomplete", ROWS).exists() and not record.exists()


@pytest.mark.parametrize("damage", [emptied, halved, zeros])
def test_a_damaged_journal_is_begun_again(finished: Path, damage: Callable[[bytes], bytes]) -> None:
    journal = finished / ".snakemake" / NAME
    journal.write_bytes(damage(journal.read_bytes()))
    assert outputs(finished).check() == []
    (finished / SVG).write_bytes(b"")
    assert len(outputs(finished).check()) == 1


def test_a_copy_with_new_times_is_right_if_its_content_is(finished: Path) -> None:
    for path in finished.rglob("*"):
        os.utime(path)
    assert outputs(finished).check() == []
    for path in finished.rglob("*"):
        os.utime(path, (1, 1))
    said = outputs(finished, AFTER).check()
    assert len(said) == 1 and "restarted" in said[0]


def test_an_output_that_is_made_again_is_noted_again(finished: Path) -> None:
    run = outputs(finished)
    finish(finished, ROWS, b"other rows\n")
    run.add()
    assert outputs(finished, AFTER).check()[1:] == []


def test_outputs_of_a_job_that_was_interrupted_are_snakemakes_business(finished: Path) -> None:
    mark(finished, "incomplete", ROWS).write_text("{}")
    (finished / ROWS).unlink()
    assert outputs(finished).check() == []


IMAGE, LOCK = "resources/images/report.sif", "resources/images/report.lock.json"


def bring(folder: Path, damaged: str = "", damage: Callable[[bytes], bytes] = bytes) -> None:
    """Leave an image and its lock as a copy from elsewhere does, without a record of Snakemake's."""
    data = b"\xff" * 5000
    header = HEADER.pack(b"SIF_MAGIC\0", HEADER.size, len(data))
    (folder / IMAGE).parent.mkdir(parents=True)
    for name, whole in ((IMAGE, header + data), (LOCK, TEXT.splitlines()[0])):
        (folder / name).write_bytes(damage(whole) if name == damaged else whole)


def test_an_image_that_was_brought_along_is_taken_if_it_is_whole(finished: Path) -> None:
    bring(finished)
    (finished / "resources/images/.base-bookworm.lock").touch()
    assert outputs(finished).check() == [] and outputs(finished, AFTER).check()[1:] == []


@pytest.mark.parametrize("name", [IMAGE, LOCK])
@pytest.mark.parametrize("damage", [emptied, halved, zeros])
def test_an_image_that_was_brought_along_damaged_is_made_again(
    finished: Path, name: str, damage: Callable[[bytes], bytes]
) -> None:
    bring(finished, name, damage)
    assert outputs(finished).check() == [f"{name} is cut short or damaged; it is made again."]
    assert mark(finished, "incomplete", name).exists()
    assert outputs(finished).check() == []


def test_a_long_name_is_stored_in_pieces_as_snakemake_stores_it(finished: Path) -> None:
    name = f"results/{'x' * 200}/rows.csv"
    text = base64.urlsafe_b64encode(name.encode()).decode()
    assert len(text) > 254
    record = finished / ".snakemake/metadata" / f"@{text[:254]}" / text[254:]
    record.parent.mkdir()
    record.write_text("{}")
    (finished / name).parent.mkdir()
    (finished / name).write_bytes(TEXT)
    assert outputs(finished).check() == []
    (finished / name).unlink()
    record.unlink()
    record.parent.rmdir()
    assert name in outputs(finished, AFTER).check()[1]
    assert (finished / ".snakemake/incomplete" / f"@{text[:254]}" / text[254:]).exists()
