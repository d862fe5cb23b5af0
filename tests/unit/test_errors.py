"""How a stage runs, and how it says that the disk is full: one line, which names the file that could not be written."""

import errno
import gc
import os
import shutil
from pathlib import Path

import pytest

from gemmrepro.errors import UserError, run_stage, shortage

FULL = Path("/dev/full")
"""Writing to it fails for want of space."""


def said(capsys: pytest.CaptureFixture[str], main) -> str:
    with pytest.raises(SystemExit) as ended:
        run_stage(main)
    assert ended.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_a_full_disk_names_what_was_to_be_written(tmp_path, capsys) -> None:
    (source := tmp_path / "source").mkdir()
    (source / "rows.csv").write_text("1,2,3\n" * 1000)
    rows, copy = str(source / "rows.csv"), str(tmp_path / "copy.csv")

    def write() -> None:  # as shutil.copyfile does where the system copies
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), rows, None, copy)

    def nameless() -> None:
        with FULL.open("wb", buffering=0) as file:
            file.write(b"1")

    assert said(capsys, write).startswith(f"gemmrepro: the disk is full while writing {copy}; free some space")
    assert "while writing a result;" in said(capsys, nameless)
    (tmp_path / "target").mkdir()
    (tmp_path / "target/rows.csv").symlink_to(FULL)
    line = said(capsys, lambda: shutil.copytree(source, tmp_path / "target", dirs_exist_ok=True) and None)
    assert f"while writing {tmp_path}/target/rows.csv;" in line
    (source / "gone.csv").symlink_to(tmp_path / "none")  # another error stays as it is
    with pytest.raises(shutil.Error):
        run_stage(lambda: shutil.copytree(source, tmp_path / "again") and None)


class OutOfMemoryError(Exception):
    """As CuPy and PyTorch call theirs."""


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OutOfMemoryError("Out of memory allocating 4,294,967,296 bytes (so far: 0 bytes)."), "needs 4.0 GiB"),
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 12.50 GiB. GPU 0 has 11 GiB."), "needs 12.5 GiB"),
        (RuntimeError("cudaErrorMemoryAllocation: out of memory"), "needs more memory than there is"),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED"), "needs more memory than there is"),
        (MemoryError("Unable to allocate 10.7 GiB for an array with shape (5,)"), "needs 10.7 GiB"),
    ],
)
def test_whichever_library_ran_out_of_memory_the_reason_is_one_line(error, reason, capsys) -> None:
    assert shortage(error) == reason and shortage(error, 3 << 29) == f"{reason}, 1.5 GiB are free"

    def run() -> None:
        raise error

    assert reason in said(capsys, run)
    assert not shortage(ValueError("the shape is wrong")) and not shortage(UserError("it needs sm_90a"))


@pytest.mark.parametrize("collect", [True, False])
def test_an_error_of_the_user_is_one_line_and_cycles_are_looked_for_where_a_stage_says_so(collect, capsys) -> None:
    seen = []

    def wrong() -> None:
        seen.append(gc.isenabled())
        raise UserError("sizes are integers.")

    try:
        with pytest.raises(SystemExit):
            run_stage(wrong, collect=collect)
    finally:
        gc.enable()
    assert (seen, capsys.readouterr().err) == ([collect], "gemmrepro: sizes are integers.\n")
