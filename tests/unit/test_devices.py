"""From nvidia-smi's answer to the page on machines that nobody here has: `tests/devices`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from card_world import DEVICES, CardWorld, Device

WORLDS = [Device.read(path) for path in DEVICES.values()]
USABLE = [device for device in WORLDS if "unusable" not in device.said]


@pytest.mark.parametrize(
    "device", [device for device in WORLDS if device not in USABLE], ids=lambda device: device.slug
)
def test_an_unusable_machine_says_why_in_one_line(device, tmp_path, monkeypatch):
    found, why_not = device.found(tmp_path, monkeypatch)
    assert not found and re.search(device.said["unusable"], why_not) and "\n" not in why_not


@pytest.mark.parametrize("device", USABLE, ids=lambda device: device.slug)
def test_a_usable_machine_is_measured_whole(device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (host, *_), _ = device.found(tmp_path, monkeypatch)
    world = CardWorld(device, tmp_path, monkeypatch, host)
    world.write_builds()
    world.write_gates()
    for family in world.plan.families:
        world.write_sweep(family)
        world.plan_regimes(family)
        world.write_experiments(family)
    judged = world.judge()
    assert judged
    world.report(monkeypatch)
