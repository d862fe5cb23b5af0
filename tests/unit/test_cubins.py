"""Functions of several cubins in one, and the listings that are taken apart again."""

import subprocess
from pathlib import Path

import pytest

from gemmrepro.build import listings
from gemmrepro.build.listings import Listings, Section, Together, merge, read_cubin

SM_90 = (
    (b"\x7fELF\x02\x01" + bytes(10), 2, 190, 1, 0x5A055A),
    (Section(".nv.compat", 0x70000086, 0, 0, 4, b"compat"),),
)
SM_80 = ((b"\x7fELF\x02\x01" + bytes(10), 2, 190, 1, 0x500550), SM_90[1])


def function(code: bytes, registers: int = 40) -> Section:
    return Section(".text.anything", 1, 6, registers << 24 | 9, 128, code)


def test_functions_that_were_merged_are_read_back():
    cubin = read_cubin(merge(SM_90, [function(b"first" * 10, 40), function(b"second", 168)]))
    assert cubin.target == SM_90 and not cubin.relocated
    assert {name: section.data for name, section in cubin.functions.items()} == {"0": b"first" * 10, "1": b"second"}
    assert [section.info >> 24 for section in cubin.functions.values()] == [40, 168]


def test_code_that_is_still_to_be_linked_is_noticed():
    for data, relocated in ((bytes(24), True), (b"", False)):
        target = (SM_90[0], (Section(".rela.text.0", 4, 0x40, 0, 8, data),))
        assert read_cubin(merge(target, [function(b"code")])).relocated is relocated


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01", merge(SM_90, [function(b"code")])[:-200]])
def test_what_is_no_whole_object_is_refused(data):
    with pytest.raises(ValueError, match="ELF-64 object"):
        read_cubin(data)


class FakeTools:
    """cuobjdump of binaries that are cubins, whose code is text: an instruction a byte."""

    def __init__(self) -> None:
        self.listed: list[list[str]] = []
        self.refuses = b""

    def __call__(self, command, check=True, env=None, folder=Path()):
        *_, path = command
        if "-xelf" in command:
            data = Path(path).read_bytes()
            arch = "sm_80" if data == merge(SM_80, [function(b"FMUL,EXIT")]) else "sm_90a"
            (folder / f"kernel.1.{arch}.cubin").write_bytes(data)
            return subprocess.CompletedProcess(command, 0, "", "")
        cubin = read_cubin(Path(path).read_bytes())
        self.listed.append(list(cubin.functions))
        codes = [section.data for section in cubin.functions.values()]
        arch = "sm_90" if cubin.target == SM_90 else "sm_80"
        lines = [f"\tcode for {arch}"]
        for name, section in cubin.functions.items():
            lines.append(f"\t\tFunction : {name}")
            lines += [
                f"        /*{16 * at:04x}*/  {word} ;" for at, word in enumerate(section.data.decode().split(","))
            ]
        return subprocess.CompletedProcess(
            command, int(bool(self.refuses) and self.refuses in codes), "\n".join(lines), ""
        )


@pytest.fixture
def tools(monkeypatch) -> FakeTools:
    fake = FakeTools()
    monkeypatch.setattr("gemmrepro.build.listings.run", fake)
    return fake


@pytest.fixture
def binaries(tmp_path) -> list[Path]:
    paths = []
    for place, (target, code) in enumerate([(SM_90, b"MOV,EXIT"), (SM_90, b"FADD,EXIT"), (SM_80, b"FMUL,EXIT")]):
        path = tmp_path / f"{place}.fatbin"
        path.write_bytes(merge(target, [function(code)]))
        paths.append(path)
    return paths


def opcodes(functions) -> list[str]:
    return [instruction.opcode for function in functions for instruction in function.instructions]


def test_one_listing_serves_all_binaries_of_an_architecture(tools, binaries):
    together = Together(binaries)
    found = [Listings(path, together).functions("0") for path in binaries]
    assert [list(by_arch) for by_arch in found] == [["sm_90a"], ["sm_90a"], ["sm_80"]]
    assert [opcodes(by_arch.values()) for by_arch in found] == [["MOV", "EXIT"], ["FADD", "EXIT"], ["FMUL", "EXIT"]]
    assert tools.listed == [["0", "1"], ["0"]]


def test_branches_by_a_table_are_left_to_the_whole_binary(tools, binaries, tmp_path):
    jumps = tmp_path / "jumps.fatbin"
    jumps.write_bytes(merge(SM_90, [function(b"BRX R2 -0x30,EXIT")]))
    assert set(listings.disassembled([*binaries, jumps])) == set(binaries)


def test_what_cannot_be_read_is_left_to_each_binary(tools, binaries):
    tools.refuses = b"MOV,EXIT"
    assert set(listings.disassembled(binaries)) == {binaries[2]}
    assert opcodes(Listings(binaries[1], Together(binaries)).functions("0").values()) == ["FADD", "EXIT"]
    binaries[0].write_bytes(b"compressed")
    assert set(listings.disassembled(binaries)) == set(binaries[1:])
