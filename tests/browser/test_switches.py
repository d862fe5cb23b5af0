"""The claims' choice of GPU and of regime: offered where the rows have several, and not otherwise."""

import json

import pytest
from pages import opened
from test_paper import choose, shown

CLAIM = "ladder.ratio.L7"


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """A report of two GPUs, one of whose claims was judged sustained and has values in two more regimes."""
    from synthetic import World
    from test_report import make, render

    root = tmp_path_factory.mktemp("several")
    world = World(root, samples=False).write()
    make(world, drawn=False)
    run = world.measure / "ceilings" / "run.json"
    told = json.loads(run.read_text())
    told["gpu"]["name"] = "Another GPU"
    run.write_text(json.dumps(told))
    judged = json.loads((root / "verdicts.json").read_text())
    [claim] = [each for each in judged["claims"] if each["id"] == CLAIM]
    value = {key: held for key, held in claim["measured"][0].items() if key != "judged"}
    beside = {"in_turn": {**value, "value": 0.5}, "burst": {**value, "value": 0.25}}
    claim["regime"] = {"article": "sustained", "judged": "sustained", "beside": beside}
    render(root, world, judged)
    return root / "report"


SHOWN = """
const row = document.getElementById("claim-ladder-ratio-L7");
const shown = [...row.cells[2].children].filter((each) => each.checkVisibility());
return shown.map((each) => each.textContent.trim().split(/[\\s[]/)[0]);
"""


def chosen(page, **choice: str) -> list[str]:
    """What the claim shows as measured after a choice."""
    for name, value in choice.items():
        choose(page, name, value)
    return page.execute_script(SHOWN)


@pytest.mark.parametrize("report", ["synthetic"], indirect=True)
def test_one_gpu_and_one_regime_are_no_choice(page, report):
    opened(page, report / "claims.html")
    names = page.execute_script("return [...document.forms['claim-filters'].elements].map(each => each.name)")
    assert "verdict" in names and not {"gpu", "regime"} & set(names)


def test_a_regime_is_chosen(page, several):
    opened(page, several / "claims.html", "verdict=")
    judged, turn, burst = chosen(page)[:3]
    assert (turn, burst) == ("0.500", "0.250")
    assert chosen(page, regime="burst")[0] == burst and turn not in chosen(page)
    assert "regime=burst" in page.current_url
    page.refresh()
    assert burst in chosen(page) and judged not in chosen(page)
    assert chosen(page, regime="")[:3] == [judged, turn, burst]


def test_a_gpu_is_chosen(page, several):
    opened(page, several / "claims.html", "verdict=")
    before = shown(page)
    for gpu, count in (("Synthetic GPU", before), ("Another GPU", 0)):
        choose(page, "gpu", gpu)
        assert shown(page) == count
