"""What the report says about the GPU notes' two families, memory and pytorch, from rows that are made up here."""

from __future__ import annotations

import itertools
import re

import pytest

from gemmrepro import experiments
from gemmrepro.core.files import write_json
from gemmrepro.core.tables import csv_text
from gemmrepro.experiments.results import load
from gemmrepro.paper import discussion

MEMORY = {
    ("histogram_global", 256): 69_000.0,
    ("histogram_shared", 256): 2600.0,
    ("histogram_merged", 256): 430.0,
    ("histogram_shared_waves", 256): 420.0,
    ("histogram_merged_waves", 256): 425.0,
    ("histogram_lanes", 256): 257.0,
    ("histogram_global", 5_242_880): 2670.0,
    ("histogram_ranges", 5_242_880): 790.0,
}


def write(folder, family, name, rows) -> None:
    """Rows of an experiment whose other cells are 1."""
    declared = experiments.experiment(family, name)
    filled = [
        {
            **{column.name: "x" if column.kind == "text" else 1 for column in declared.columns},
            **{"toolkit": "library", "build_key": "k", "status": "current", **row},
        }
        for row in rows
    ]
    (folder / family).mkdir(parents=True, exist_ok=True)
    (folder / family / f"{name}.csv").write_text(csv_text(filled, declared.header))
    write_json(folder / family / f"{name}.json", {"gpu": {"name": "GPU A"}, "source": "recorded"})


def told(folder, family) -> str:
    words = re.sub(r"<[^>]+>", "", str(discussion.render(family, {}, load(folder, family))))
    return re.sub(r"\s+", " ", words)


@pytest.mark.parametrize("family", ["memory", "pytorch"])
def test_without_rows_nothing_is_claimed(tmp_path, family):
    words = told(tmp_path, family)
    assert "nan" not in words
    for sentence in ("The merge is not the reason", "hardest-won", "Watching every step", "compiled apart"):
        assert sentence not in words


def test_the_steps_of_the_histogram_are_told_with_their_reason(tmp_path):
    cells = itertools.product(MEMORY.items(), ("uniform", "skewed", "constant"), ("off", "on"))
    rows = [
        {"kernel": f"memory.{name}", "bins": bins, "law": law, "window": window, "time_us": time, "most_kept_mb": 37.5}
        for ((name, bins), time), law, window in cells
    ]
    write(tmp_path, "memory", "histogram", rows)
    words = told(tmp_path, "memory")
    assert "makes uniform ids 26.5 times as fast" in words and "4.16.05" in words  # neighbours in a table
    assert "The merge is not the reason." in words and "sets aside 37.5 MB of L2 at most" in words


def test_torch_jit_script_and_the_first_steps_are_told(tmp_path):
    rows = [
        {
            **{"kernel": "torch.jit.script", "order": order, "gain": gain, "slow_calls": 2},
            **{"first_of_median": 9.2, "second_of_median": 263.0},
        }
        for order, gain in (("gpu", 3.0), ("cpu", 1.0), ("cpu, cleared", 3.05), ("shape", 3.0))
    ]
    write(tmp_path, "pytorch", "gelu_order", rows)
    cells = {"kernel": "torch.jit.script", "elements": 268435456, "gain": 3.0}
    write(
        tmp_path,
        "pytorch",
        "gelu",
        [
            {**cells, "kernel": kernel}
            for kernel in ("torch.eager", "torch.jit.script", "torch.compile", "pytorch.gelu")
        ],
    )
    ways = [
        {"kernel": "torch.eager", "way": way, "cost": cost} for way, cost in (("synchronised", 1.05), ("events", 1.0))
    ]
    write(tmp_path, "pytorch", "monitoring", ways)
    write(
        tmp_path,
        "pytorch",
        "timing",
        [
            {"kernel": "torchvision.resnet50", "method": method, "ratio": ratio, "median_us": 17600 * ratio}
            for method, ratio in (("unsynchronised", 0.25), ("synchronised", 1.0), ("first", 17.0), ("cpu", 100.0))
        ],
    )
    modes = ("torch.eager", "torch.compile.default", "torch.compile.reduce-overhead", "torch.compile.max-autotune")
    training = [{"kernel": mode, "part": "steady", "step_ms": 13.0, "slow_steps": 3} for mode in modes]
    training += [
        {"kernel": mode, "part": part, "iteration": number, "seconds": 12.0 / number}
        for mode, part, number in itertools.product(
            modes, ("forward", "backward", "backward, not synchronised", "step"), (1, 10)
        )
    ]
    write(tmp_path, "pytorch", "training", training)
    words = told(tmp_path, "pytorch")
    assert "on the GPU, and 3.05 times once the caches" in words and "Watching every step" in words
    assert "first, which only profiles, takes 9.2 times as long, the second, which compiles, 263 times." in words
    assert "takes 12 s forward and 12 s backward" in words
    assert "takes 100 times as long as on the GPU, and 400 times" in words
