"""Outputs that a power cut, a full disk or a hand changed after their job: found and marked, or harmless."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gemmrepro.host.runs import HEADER, MOST_SAID, NOTES, check, note, record_path, records

TEXT = b'{"a": [1, 2, 3]}\n' * 50
ROWS, SVG, NARROW, PAGES = "results/rows.csv", "results/a.svg", "results/a.narrow.svg", "reports/kernels"
PAGE = f"{PAGES}/naive.html"
IMAGE = "resources/images/report.sif"


def finish(folder: Path, name: str, rule: str, *inputs: str, data: bytes = TEXT) -> None:
    """Leave an output and Snakemake's record of it, as a finished job does."""
    path = folder / (PAGE if name == PAGES else name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    record = record_path(name, folder)
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps({"rule": rule, "input": inputs}))


def marks(folder: Path) -> set[str]:
    return set(records(folder, "incomplete"))


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A working folder whose guard noted the outputs of three jobs, of which the second and third read the first's."""
    finish(tmp_path, ROWS, "measure")
    finish(tmp_path, SVG, "figures", ROWS)
    finish(tmp_path, NARROW, "figures", ROWS)
    finish(tmp_path, PAGES, "report", ROWS, SVG)
    note(tmp_path)
    return tmp_path


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda data: b"",
    "halved": lambda data: data[: len(data) // 2],
    "zeros": lambda data: bytes(len(data)),
    "a bit": lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
}


def test_of_many_deleted_outputs_a_few_are_named_and_all_are_made_again(tmp_path):
    names = [f"results/{i}.csv" for i in range(MOST_SAID + 3)]
    for name in names:
        finish(tmp_path, name, "measure")
    note(tmp_path)
    for name in names:
        (tmp_path / name).write_bytes(b"")
    *named, rest = check(tmp_path)
    assert len(named) == MOST_SAID and rest == "3 more were deleted or changed; they are made again."
    assert marks(tmp_path) == set(names)


@pytest.mark.parametrize(("name", "marked"), [(ROWS, ROWS), (PAGE, PAGES)])
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_output_is_named_once_and_made_again(finished, damage, name, marked):
    (finished / name).write_bytes(damage(TEXT))
    assert check(finished) == [f"{name} was edited or damaged since its job wrote it; it is made again."]
    assert marks(finished) == {marked}
    assert check(finished) == []


@pytest.mark.parametrize(("name", "marked"), [(ROWS, {SVG, NARROW, PAGES}), (SVG, {NARROW, PAGES})])
def test_a_deleted_output_is_made_again_for_what_reads_it_and_with_what_its_job_made(finished, name, marked):
    """Snakemake takes marks of files that exist alone."""
    (finished / name).unlink()
    assert check(finished) == [f"{name} was deleted; it is made again."]
    assert marks(finished) - {name} == marked


def test_what_is_whole_copied_with_other_times_or_made_again_is_right(finished: Path) -> None:
    assert check(finished) == []
    for path in (finished / "results").iterdir():
        os.utime(path, (1, 1))
    assert check(finished) == [] and marks(finished) == set()
    finish(finished, ROWS, "measure", data=b"other rows\n")  # or touched by Snakemake
    assert check(finished) == []
    note(finished)
    (finished / ROWS).write_bytes(TEXT)
    assert len(check(finished)) == 1


def test_outputs_of_a_job_at_work_are_noted_when_it_has_ended(finished: Path) -> None:
    late = f"results/{'x' * 200}/late.csv"  # Snakemake stores a long name in pieces
    finish(finished, late, "measure")
    assert record_path(late, finished).parent.name.startswith("@")
    mark = record_path(late, finished, "incomplete")
    mark.parent.mkdir(parents=True)
    mark.touch()
    note(finished)
    assert late not in json.loads((finished / NOTES).read_text())
    mark.unlink()
    (finished / NOTES).write_bytes((finished / NOTES).read_bytes()[:50])  # damaged notes are begun again
    note(finished)
    assert late in json.loads((finished / NOTES).read_text())


@pytest.mark.parametrize("damage", [bytes, *DAMAGE.values()], ids=["whole", *DAMAGE])
def test_an_image_is_as_long_as_its_header_says(finished: Path, damage: Callable[[bytes], bytes]) -> None:
    """Also one that was brought along, without a record of Snakemake's."""
    content = b"\xff" * 5000
    whole = HEADER.pack(b"SIF_MAGIC\0", HEADER.size, len(content)) + content
    (finished / IMAGE).parent.mkdir(parents=True)
    (finished / IMAGE).write_bytes(damage(whole))
    spoilt = damage in (DAMAGE["emptied"], DAMAGE["halved"], DAMAGE["zeros"])
    assert check(finished) == ([f"{IMAGE} is cut short or damaged; it is made again."] if spoilt else [])
    assert marks(finished) == ({IMAGE} if spoilt else set())
    assert check(finished) == []
