"""Reading machine code (vector_add for sm_90 and sm_120, smem for sm_86), and functions of several cubins in one."""

import subprocess
from pathlib import Path

import pytest

from gemmrepro.build import listings
from gemmrepro.build.listings import Listings, Section, merge, read_cubin

COMPAT = Section(".nv.compat", 0x70000086, 0, 0, 4, b"compat")
SM_90, SM_80 = (((b"\x7fELF\x02\x01" + bytes(10), 2, 190, 1, flags), (COMPAT,)) for flags in (0x5A055A, 0x500550))


def function(code: bytes, registers: int = 40) -> Section:
    return Section(".text.anything", 1, 6, registers << 24 | 9, 128, code)


def test_functions_that_were_merged_are_read_back_and_code_still_to_be_linked_is_noticed():
    cubin = read_cubin(merge(SM_90, [function(b"first" * 10, 40), function(b"second", 168)]))
    assert cubin.target == SM_90 and not cubin.relocated
    assert {name: section.data for name, section in cubin.functions.items()} == {"0": b"first" * 10, "1": b"second"}
    assert [section.info >> 24 for section in cubin.functions.values()] == [40, 168]
    for data, relocated in ((bytes(24), True), (b"", False)):
        target = (SM_90[0], (Section(".rela.text.0", 4, 0x40, 0, 8, data),))
        assert read_cubin(merge(target, [function(b"code")])).relocated is relocated


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01", merge(SM_90, [function(b"code")])[:-200]])
def test_what_is_no_whole_object_is_refused(data):
    with pytest.raises(ValueError, match="ELF-64 object"):
        read_cubin(data)


@pytest.fixture
def listed(monkeypatch) -> list[list[str]]:
    """The functions of each listing. In the place of cuobjdump; code is text, and BAD is refused."""
    calls: list[list[str]] = []

    def run(command, check=True, env=None, folder=Path()):
        data = Path(command[-1]).read_bytes()
        if "-xelf" in command:
            arch = "sm_80" if data == merge(SM_80, [function(b"FMUL,EXIT")]) else "sm_90a"
            (folder / f"kernel.1.{arch}.cubin").write_bytes(data)
            return subprocess.CompletedProcess(command, 0, "", "")
        cubin = read_cubin(data)
        calls.append(list(cubin.functions))
        lines = ["\tcode for sm_90" if cubin.target == SM_90 else "\tcode for sm_80"]
        for name, section in cubin.functions.items():
            words = enumerate(section.data.decode().split(","))
            lines += [f"\t\tFunction : {name}", *(f"        /*{16 * at:04x}*/  {word} ;" for at, word in words)]
        return subprocess.CompletedProcess(command, int("BAD" in "".join(lines)), "\n".join(lines), "")

    monkeypatch.setattr("gemmrepro.build.listings.run", run)
    return calls


def binaries(folder: Path, *more: bytes) -> list[Path]:
    codes = [(SM_90, b"MOV,EXIT"), (SM_90, b"FADD,EXIT"), (SM_80, b"FMUL,EXIT"), *((SM_90, code) for code in more)]
    paths = [folder / f"{place}.fatbin" for place in range(len(codes))]
    for path, (target, code) in zip(paths, codes, strict=True):
        path.write_bytes(merge(target, [function(code)]))
    return paths


def test_one_listing_serves_all_binaries_of_an_architecture(listed, tmp_path):
    paths = binaries(tmp_path)
    found = [Listings(path, functions).functions("0") for functions in [listings.disassembled(paths)] for path in paths]
    assert [list(by_arch) for by_arch in found] == [["sm_90a"], ["sm_90a"], ["sm_80"]]
    opcodes = [[at.opcode for each in by_arch.values() for at in each.instructions] for by_arch in found]
    assert opcodes == [["MOV", "EXIT"], ["FADD", "EXIT"], ["FMUL", "EXIT"]]
    assert listed == [["0", "1"], ["0"]]


def test_what_a_listing_apart_may_change_or_cannot_read_is_left_to_each_binary(listed, tmp_path):
    """Branches by a table, code that is refused beside others, and a binary whose cubins are compressed."""
    paths = binaries(tmp_path, b"BRX R2 -0x30,EXIT")
    assert set(listings.disassembled(paths)) == set(paths[:3])
    bad = binaries(tmp_path, b"BAD,EXIT")
    assert set(listings.disassembled(bad)) == {bad[2]}
    bad[3].write_bytes(b"compressed")
    assert set(listings.disassembled(bad)) == set(bad[:3])


LISTING = (Path(__file__).parent / "data" / "listing.sass").read_text()


def code_of(arch: str) -> listings.Function:
    return next(function for function in listings.parse(LISTING) if function.arch == arch)


def hot_loop(*lines: str) -> list[int]:
    """Addresses of the main loop of these instructions."""
    code = "".join(f"        /*{16 * i:04x}*/  {line} ;   /* 0x0000000000000000 */\n" for i, line in enumerate(lines))
    (function,) = listings.parse(f"\tcode for sm_90\n\t\tFunction : f\n{code}")
    return [instruction.address for instruction in function.hot_loop]


def test_functions_are_found_with_their_architecture_without_padding_and_shown_without_encodings():
    found = listings.parse(LISTING)
    assert [(each.arch, each.name) for each in found] == [
        *(("sm_90", "vector_add"), ("sm_120", "vector_add"), ("sm_86", "smem"))
    ]
    for each in found:
        assert each.instructions[-1].target != each.instructions[-1].address and each.instructions[-1].opcode != "NOP"
    text = listings.format_instructions(code_of("sm_90").instructions)
    assert "00060    @P0 EXIT\n" in text and "LDG.E" in text and "/*" not in text


def test_histogram_counts_opcodes_with_modifiers_and_without_predicates():
    histogram = code_of("sm_86").histogram
    counts = {"LDS.128": 8, "LDS": 32, "STS": 2, "BAR.SYNC.DEFER_BLOCKING": 2, "FFMA": 33}
    assert counts.items() <= histogram.items()
    assert not any(opcode.startswith("@") for opcode in histogram)
    assert sum(histogram.values()) == len(code_of("sm_86").instructions)
    assert (code_of("sm_86").barriers, code_of("sm_90").barriers) == (1, 0)


def test_innermost_loop_with_most_arithmetic_is_chosen_and_one_that_only_waits_hides_none():
    multiply, wait = "FFMA R0, R0, R0, R0", "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R4], R3"
    # An outer loop from 0x00 around one of an addition and one of two multiply-adds.
    outer = (multiply, "FADD R1, R1, R1", "@P0 BRA 0x10", multiply, multiply, "BRA.U UP0, 0x30", "@!P1 BRA 0x0", "EXIT")
    assert hot_loop(*outer) == [0x30, 0x40, 0x50]
    product = "HGMMA.64x128x16.F32.BF16 R24, gdesc[UR12], R24"
    assert hot_loop("FADD R1, R1, R1", wait, "@!P0 BRA 0x10", product, "@P1 BRA 0x10", "EXIT") == [
        0x10,
        0x20,
        0x30,
        0x40,
    ]
    assert hot_loop("NOP", wait, "@!P0 BRA 0x10", "EXIT") == [0x10, 0x20]
    assert hot_loop(multiply, "@P0 BRA 0x30", "NOP", "EXIT") == []
