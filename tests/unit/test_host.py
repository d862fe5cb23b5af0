"""Which GPUs a host has, and what a run makes of them. A program called nvidia-smi answers as the driver's would."""

from functools import partial
from pathlib import Path

import pytest

from gemmrepro.errors import UserError
from gemmrepro.gpu import slots
from gemmrepro.gpu.slots import HostGpu
from gemmrepro.host import places
from gemmrepro.host.places import VARIABLE, find_gpus

GPU = HostGpu("NVIDIA H200", 90, "GPU-1")


def line(name: str, capability: str, uuid: str, driver: str = "580.65.06") -> str:
    return f"{name}, {capability}, {uuid}, {driver}\n"


FOUR = "".join(line("NVIDIA H200", "9.0", f"GPU-{i}a") for i in range(4))
ALL = [f"GPU-{i}a" for i in range(4)]
A6000, T4, GT710, RUBIN = "NVIDIA RTX A6000", "NVIDIA T4", "NVIDIA GeForce GT 710", "NVIDIA Rubin X"
MIXED = line(A6000, "8.6", "GPU-0a") + line(T4, "7.5", "GPU-1a") + line(A6000, "8.6", "GPU-2a")
SHOWN = line(GT710, "3.5", "GPU-t") + line("NVIDIA H200", "9.0", "GPU-h") + line(A6000, "8.6", "GPU-s")
LOST = "NVIDIA H200, [GPU is lost], [GPU is lost], [GPU is lost]"
WARNING = "WARNING: infoROM is corrupted at gpu 0000:3B:00.0"
SLICES = """GPU 0: NVIDIA A100 (UUID: GPU-0a)
GPU 1: NVIDIA A100 (UUID: GPU-1a)
  MIG 1g.5gb      Device  0: (UUID: MIG-5b)
  MIG 1g.5gb      Device  1: (UUID: MIG-6b)"""
CLUSTER = {"name": "NVIDIA A100", "capability": 80}


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes nvidia-smi print a text, or fail with it, on a host with the driver's device."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in (slots.VISIBLE, VARIABLE, slots.EXPECTED):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    monkeypatch.setattr(places, "find_gpus", partial(find_gpus, dev=tmp_path / "dev", machine="x86_64"))

    def answers(text: str, code: int = 0, slices: str = "") -> None:
        program = tmp_path / "nvidia-smi"
        listed, slices = ("".join(f"echo '{line}'\n" for line in said.splitlines()) for said in (text, slices))
        program.write_text(f"#!/bin/sh\ncase $1 in -L)\n{slices};; *)\n{listed}esac\nexit {code}\n")
        program.chmod(0o755)

    return answers


def found(visible: str | None) -> tuple[list[str], str]:
    gpus, why_not = places.find_gpus({} if visible is None else {slots.VISIBLE: visible})
    return [gpu.uuid for gpu in gpus], why_not


@pytest.mark.parametrize(
    ("listing", "visible", "uuids"),
    [
        (FOUR, None, ALL),
        (FOUR, "0,0, GPU-0", ["GPU-0a"]),
        (FOUR, "2,-1,3", ["GPU-2a"]),
    ],
)
def test_jobs_are_spread_over_the_visible_gpus(listing, visible, uuids, driver):
    driver(listing)
    assert found(visible) == (uuids, "")


@pytest.mark.parametrize(
    ("listing", "visible", "uuids", "left_out"),
    [
        (MIXED, None, ["GPU-0a", "GPU-2a"], f"{T4} has compute capability 7.5, and kernels need 8.0"),
        (SHOWN, None, ["GPU-h"], f"{GT710} has compute capability 3.5, and kernels need 8.0; {A6000} is another model"),
        (SHOWN, "2,0,1", ["GPU-s"], "3.5, and kernels need 8.0; NVIDIA H200 is another model than NVIDIA RTX A6000"),
        (MIXED, "0,2", ["GPU-0a", "GPU-2a"], f"{T4}: not in CUDA_VISIBLE_DEVICES=0,2, whose numbers are in nvidia"),
        (FOUR + 50 * f"{LOST}\n", None, ALL, f'nvidia-smi says "{LOST}"'),
        (f"{LOST}\n{FOUR}{WARNING}", "3", ["GPU-3a"], f'lost]"; nvidia-smi says "{WARNING}"'),
    ],
)
@pytest.mark.parametrize("code", [0, 15])
def test_the_first_supported_model_is_measured_and_the_rest_is_named(code, listing, visible, uuids, left_out, driver):
    driver(listing, code)
    gpus, said = found(visible)
    assert gpus == uuids and left_out in said and "\n" not in said and len(said) < 500


@pytest.mark.parametrize(
    ("visible", "uuids"), [("MIG-6b", ["MIG-6b"]), ("MIG-5b,MIG-6b,MIG-5b", ["MIG-5b", "MIG-6b"]), ("MIG-9", [])]
)
def test_a_slice_belongs_to_the_card_that_is_cut(visible, uuids, driver):
    driver(line(T4, "7.5", "GPU-0a") + line("NVIDIA A100", "8.0", "GPU-1a"), slices=SLICES)
    assert found(visible)[0] == uuids
    assert all(gpu.name == "NVIDIA A100" for gpu in places.find_gpus({slots.VISIBLE: visible})[0])


@pytest.mark.parametrize(
    ("text", "code", "visible", "reason"),
    [
        ("", 0, None, "nvidia-smi lists no GPU"),
        ("No devices were found", 6, None, "nvidia-smi failed: No devices were found"),
        ("NVIDIA H200, 9.0, GPU-h, [N/A]", 0, None, 'nvidia-smi says "NVIDIA H200, 9.0, GPU-h, [N/A]"'),
        (line(RUBIN, "13.0", "GPU-x", "620.10"), 0, None, f"{RUBIN} has compute capability 13.0, for which no toolkit"),
        (LOST, 15, None, "GPU is lost"),
        (FOUR, 0, "", "CUDA_VISIBLE_DEVICES= leaves no GPU"),
        (FOUR, 0, "\u0663", "leaves no GPU"),
        (line("A", "9.0", "GPU-12") + line("A", "9.0", "GPU-13"), 0, "GPU-1", "leaves no GPU"),
        (SHOWN, 0, "0", f"need 8.0; NVIDIA H200, {A6000}: not in CUDA_VISIBLE_DEVICES=0, whose numbers are in nvidia"),
    ],
)
def test_no_usable_gpu_is_said_in_one_line_and_refused_where_one_is_asked_for(
    text, code, visible, reason, driver, capsys
):
    driver(text, code)
    gpus, why_not = found(visible)
    assert gpus == [] and reason in why_not
    environ = {} if visible is None else {slots.VISIBLE: visible}
    assert places.resolve({"measure": "auto"}, environ, main=True).measure == "recorded"
    said = capsys.readouterr().err
    assert said == f"gemmrepro: measuring nothing: {why_not}; the recordings stand in\n"
    places.resolve({"measure": "auto"}, environ, main=False)
    places.resolve({"measure": "recorded"}, {}, main=True)
    assert capsys.readouterr().err == "", "jobs say it no more"
    with pytest.raises(UserError, match=r"measure: live needs a usable NVIDIA GPU.*auto or recorded.*compute nodes"):
        places.resolve({"measure": "live"}, dict.fromkeys(environ, visible), main=True)


@pytest.mark.parametrize(
    ("made", "machine", "containers", "reason"),
    [
        (["dev/dxg"], "x86_64", True, "libdxcore.so; update WSL"),
        ([], "x86_64", False, "neither"),
        (["dev/nvidiactl"], "aarch64", False, ""),
    ],
)
def test_the_host_must_have_a_device_and_be_one_that_images_are_for(
    made, machine, containers, reason, driver, tmp_path
):
    driver(FOUR)
    for path in (tmp_path / "host" / name for name in made):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    folders = {"dev": tmp_path / "host/dev", "wsl": tmp_path / "host/wsl"}
    gpus, why_not = find_gpus({}, containers=containers, machine=machine, **folders)
    assert (not gpus, reason in why_not) == (bool(reason), True)


def test_jobs_take_the_target_of_the_run_wherever_they_run(driver, capsys):
    """Planned without a GPU, run beside one; and the reverse. What is left out is said once."""
    environ: dict[str, str] = {}
    planned = places.resolve({"measure": "auto"}, environ, main=True)
    assert planned == places.Target("recorded", None, "nvidia-smi is not on PATH", 1)
    driver(FOUR)
    assert places.resolve({"measure": "auto"}, environ, main=False) == planned
    live = places.resolve({"measure": "auto"}, environ, main=True)
    assert (live.measure, live.gpu, live.slots) == ("live", HostGpu("NVIDIA H200", 90, "GPU-0a"), 8)
    driver("", 1)
    assert places.resolve({"measure": "auto"}, environ, main=False) == live
    assert places.resolve({"measure": "auto"}, {}, main=False).measure == "recorded"  # nothing was handed on
    driver(MIXED)
    capsys.readouterr()
    for main in (True, False):
        assert places.resolve({"measure": "auto"}, environ, main=main).slots == 4
    said = capsys.readouterr().err
    assert said.startswith(f"gemmrepro: measuring on 2 x {A6000}; not used: {T4} has compute") and said.count("\n") == 1


@pytest.mark.parametrize("measure", ["auto", "live"])
def test_a_login_node_plans_for_the_configured_gpu(measure, driver):
    environ: dict[str, str] = {}
    planned = places.resolve({"measure": measure, "gpu": CLUSTER}, environ, main=True)
    assert (planned.measure, planned.gpu) == ("live", HostGpu("NVIDIA A100", 80))
    assert environ[slots.EXPECTED] == "NVIDIA A100"
    places.resolve({"measure": "auto", "gpu": None}, environ, main=True)
    assert slots.EXPECTED not in environ


def test_a_job_on_another_model_than_planned_is_refused(monkeypatch):
    monkeypatch.setenv(slots.EXPECTED, "NVIDIA A100")
    slots.check_expected("NVIDIA A100")
    with pytest.raises(UserError, match=r"NVIDIA H200.*gpu\.name: NVIDIA A100"):
        slots.check_expected("NVIDIA H200")
