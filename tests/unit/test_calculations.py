"""What families calculate for claims that need no GPU: printed code, listings, and machine code's floor."""

from types import SimpleNamespace

import pytest

from gemmrepro import registry
from gemmrepro.errors import UserError
from gemmrepro.judge.metrics.calculated import Inputs, calculation
from gemmrepro.registry.articles import chip_of


def calculated(name: str, *opcodes: dict[str, int], n: int | None = None, **given: object) -> float:
    """The value of `family.function` on machine code of these opcodes; of ada with the article's GPU."""
    codes = tuple(SimpleNamespace(instructions=of, instruction_total=sum(of.values())) for of in opcodes)
    family, function = name.split(".")
    kernels = tuple(registry.kernel(f"ada.{kernel}") for kernel in ("packed_4x", "packed_async")[: len(codes)])
    ada = {"kernels": kernels, "chip": chip_of("ada", "RTX 4090"), "n": 4096} if family == "ada" else {"n": n}
    return calculation(family, function)(Inputs(codes=codes, options=given, **ada)).value


MMA = "HMMA.16816.F32"
LARGE, SMALL = {MMA: 32, "BAR.SYNC": 1}, {MMA: 24, "BAR.SYNC": 3}
CAST, PLAIN = {"LDG.E": 5, "STG.E": 5}, {"LDG.E": 5, "STG.E": 4, "MOV": 3}


@pytest.mark.parametrize(
    ("name", "opcodes", "given", "value"),
    [
        ("memory.merged_as_printed", (), {"bins": 1024}, 11),  # the powers of two up to 1024
        ("memory.copied_as_printed", (), {"first": 1024, "last": 1 << 30, "doubling": 1}, 21),
        ("memory.copied_as_printed", (), {"first": 1025, "last": 1032}, 2),
        ("memory.shared_of_an_a100", (), {}, 164),
        ("memory.instructions_of_the_cast", (CAST, CAST), {}, 0),
        ("memory.instructions_of_the_cast", (CAST, PLAIN), {}, 3),
        ("pytorch.printed_milliseconds", (), {"milliseconds": 1}, 1e-6),
        ("hopper.overlap_of_tiles", (), {"bm": 128, "bk": 64}, 128 * 64),  # half of 2 bm bk bytes
        ("hopper.missing_blocks", (), {"n": 4096, "bk": 64, "k": 16}, 60),
        ("hopper.missing_blocks", (), {"n": 256, "bk": 64, "k": 16}, 0),
        ("hopper.bank_conflicts", (), {}, 1),
        ("hopper.place_of_sums", (), {}, 1),
        *(("cute.tiles_dropped", (), {"sides": side}, lost) for side, lost in ((7, 0), (9, 19), (20, 56), (33, 154))),
        ("ada.share_of_floor", ({MMA: 64, "BAR.SYNC": 2},), {"microseconds": 895}, pytest.approx(0.93, abs=0.0005)),
        ("ada.fewer_barriers", (LARGE, SMALL), {}, 4),
        ("ada.fewer_barriers", (LARGE | {"BAR.SYNC": 2}, SMALL), {}, 2),
    ],
)
def test_what_is_calculated(name, opcodes, given, value):
    assert calculated(name, *opcodes, **given) == value


def test_code_that_makes_an_mma_twice_or_not_at_all_is_refused():
    for wrong in (33, 31, 0):
        with pytest.raises(UserError, match="no multiple of 32"):
            calculated("ada.share_of_floor", {MMA: wrong}, microseconds=895)


@pytest.mark.parametrize(
    ("name", "registers", "static", "arch", "blocks"),
    [
        ("article_base", 168, 32768, "sm_80", 3),  # 3 x 128 x 168 registers are 64,512 of 65,536
        ("article_base", 169, 32768, "sm_80", 2),
        ("article_three_stages", 226, 0, "sm_80", 1),  # 2 x 97 KB are more than 164
        ("article_three_stages", 226, 0, "sm_90", 2),
    ],
)
def test_resident_blocks(name, registers, static, arch, blocks):
    code = SimpleNamespace(registers=registers, shared_bytes=static)
    given = Inputs(kernels=(registry.kernel(f"cute.{name}"),), codes=(code,), arch=arch, n=2048)
    assert calculation("cute", "resident_blocks")(given).value == blocks
