"""From nvidia-smi's answer to the page on machines that nobody here has: `tests/devices`, and some that are drawn."""

import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest
from card_world import DEVICES, CardWorld, Device
from support import ROOT

from gemmrepro import registry
from gemmrepro.core.architectures import shared_limit
from gemmrepro.core.names import LIBRARY
from gemmrepro.errors import UserError
from gemmrepro.paper.findings import reference_gpu
from gemmrepro.recordings.bundles import accept, read_bundle
from gemmrepro.registry.requirements import requirement, tally

WORLDS = [Device.read(path) for path in DEVICES.values()]
USABLE = [device for device in WORLDS if "unusable" not in device.said]
PAGED = ("b200", "rtx-4090")
WHOLE = ("a100-mig-1g-5gb", "h100-pcie", "rtx-3060-laptop", "rtx-5090")
"""The smallest of its kind, with least told by the driver, or of an architecture of its own; the others are found."""
RATES = "fp32 fp64 fp16_acc32 fp16_acc16 bf16 tf32 fp8 int8".split()


def unseen(seed: int) -> Device:
    """A card that no data sheet describes."""
    dice = random.Random(seed)
    memory, sms, clock = dice.uniform(6, 200), dice.randrange(14, 170), dice.randrange(1200, 3200, 15)
    fp32 = sms * 128 * clock * 1e-6
    said = {
        "name": f"NVIDIA Unseen {seed}",
        "capability": dice.choice(["8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0", "12.1"]),
        "sms": sms,
        "l2_mb": dice.choice([2.25, 6, 24, 50, 96]),
        "memory_gib": memory,
        "free_gib": 0.9 * memory,
        "clock_mhz": clock,
        "memory_clock_mhz": None,
        "power_cap_w": dice.choice([None, 130, 700]),
        "driver": "595.10",
        "rates": dict(zip(RATES, [fp32, fp32 / 64, *[2 * fp32] * 4, 4 * fp32, 4 * fp32], strict=True)) | {"dram": 300},
    }
    return Device(f"unseen-{seed}", said)


def measured(device: Device, folder: Path, monkeypatch: pytest.MonkeyPatch) -> CardWorld:
    """A run on this machine up to the verdicts."""
    (host, *_), _ = device.found(folder, monkeypatch)
    world = CardWorld(device, folder, monkeypatch, host)
    world.write_builds()
    world.write_gates()
    for family in world.plan.families:
        world.write_sweep(family)
        world.write_regimes(family)
        world.write_experiments(family)
    return world


def check_measured(world: CardWorld) -> None:
    """Nothing that fits is lost, and what is left out says why."""
    kernels = [kernel for kernel in registry.kernels() if kernel.family in world.plan.families]
    limit = shared_limit("{}{}".format(*world.device.capability))
    assert limit == 1024 * world.device.said.get("shared_kib", limit / 1024)
    counts = tally(kernels, world.device.capability)
    assert sum(counts.values()) == len(kernels)
    able = {kernel.id for kernel in kernels if not requirement(kernel, world.device.capability)}
    assert set(world.runs) == able and len(able) == counts.get("", 0)
    for family, points in world.points.items():
        timed = {point.kernel for point in points if point.toolkit != LIBRARY}
        for entry in world.skipped[family]:
            assert "numerical gate says" not in entry.reason and "compiled_once" not in entry.reason, entry
        wanted = {each.id for each in kernels if each.id in able and each.family == family and each.timing.timed}
        assert timed | {entry.kernel for entry in world.skipped[family]} >= wanted, family
        assert not wanted or timed, f"{family} is lost"


def check_filed(world: CardWorld) -> None:
    """No claim fails for a gate that did not run, and the bundle is accepted as what it is."""
    judged = world.judge()
    assert not [claim["id"] for claim in judged["claims"] if "numerical gate says" in json.dumps(claim)]
    assert world.accepted().is_dir()
    with pytest.raises(UserError, match="synthetic"):
        accept(read_bundle(world.root / "mine.zip"), world.root / "refused", world.build)


def check_page(world: CardWorld, folder: Path) -> None:
    """The page names the card, counts what cannot run on it, and says nothing that is true elsewhere alone."""
    text = (folder / "index.html").read_text()
    shown = re.sub(r"<(script|style|svg|details)\b.*?</\1>", " ", text, flags=re.DOTALL)
    plain = " ".join(re.sub(r"<[^>]+>", " ", shown).split())
    assert world.gpu.name in plain
    assert "numerical gate says" not in plain and "cuBLAS that uses wgmma" not in plain
    lacking = [reason for reason in tally(registry.kernels(), world.device.capability) if reason]
    for reason in lacking:
        assert plain.count(reason.replace("'", "\N{RIGHT SINGLE QUOTATION MARK}")) or reason in plain, reason
    assert (f"Of {len(list(registry.kernels()))} kernels {len(world.runs)} run on this GPU" in plain) == bool(lacking)
    for family in ("ada", "hopper"):
        page = (folder / f"families/{family}.html").read_text()
        told = page.split(f'id="findings-{family}"')[1].split("</section>")[0]
        assert (f"<details>\n<summary>What was found on {reference_gpu()}</summary>" in told) == (
            world.gpu.name != reference_gpu()
        )


@pytest.mark.parametrize("device", WORLDS, ids=lambda device: device.slug)
def test_a_machine_is_found_or_says_why_not_in_one_line(device, tmp_path, monkeypatch):
    found, why_not = device.found(tmp_path, monkeypatch)
    if device in USABLE:
        assert divmod(found[0].capability, 10) == device.capability
        assert found[0].name == device.said.get("mig", device.name)
    else:
        assert not found and re.search(device.said["unusable"], why_not) and "\n" not in why_not


@pytest.mark.parametrize(
    "device", [Device.read(DEVICES[slug]) for slug in (*WHOLE, *PAGED)] + [unseen(5)], ids=lambda device: device.slug
)
def test_a_usable_machine_is_measured_whole_and_has_its_page(device, tmp_path, monkeypatch):
    world = measured(device, tmp_path, monkeypatch)
    check_measured(world)
    check_filed(world)
    if device.slug not in WHOLE:
        check_page(world, world.report(monkeypatch, drawn=device.slug.startswith("unseen")))


def test_the_readme_says_what_a_card_can_measure() -> None:
    """Its table follows from the profiles and the kernels' records."""
    names: dict[tuple[int, int], list[str]] = {}
    for device in USABLE:
        if "mig" not in device.said:
            name = re.sub(r"^(NVIDIA|Tesla) (GeForce )?|-SXM.*| (PCIe|Laptop GPU|80GB).*", "", device.name)
            names.setdefault(device.capability, []).append(name)
    kernels = list(registry.kernels())
    lines = [f"| capability | such as | of {len(kernels)} kernels | the others need |", "|---|---|---|---|"]
    for capability in sorted(names):
        counts: Counter[str] = Counter()
        for reason, count in tally(kernels, capability).items():
            counts[re.sub(r" \(.*|, where.*", "", reason)] += count
        able = counts.pop("", 0)
        lacking = "; ".join(f"{reason}: {count}" for reason, count in counts.most_common()) or "nothing"
        cards = ", ".join(dict.fromkeys(names[capability]))
        lines.append(f"| {'.'.join(map(str, capability))} | {cards} | {able} | {lacking} |")
    table = "\n".join(lines)
    assert table in (ROOT / "README.md").read_text(), f"put into README.md:\n{table}"
