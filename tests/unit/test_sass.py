"""Reading machine code: real listings (vector_add for sm_90 and sm_120, smem for sm_86), small ones for corners."""

from pathlib import Path

from gemmrepro.build import sass

LISTING = (Path(__file__).parent / "data" / "listing.sass").read_text()


def function(arch: str, listing: str = LISTING) -> sass.Function:
    return next(function for function in sass.parse(listing) if function.arch == arch)


def listing(*lines: str) -> str:
    code = "".join(f"        /*{16 * i:04x}*/  {line} ;   /* 0x0000000000000000 */\n" for i, line in enumerate(lines))
    return f"\tcode for sm_90\n\t\tFunction : f\n{code}"


def test_functions_are_found_with_their_architecture_without_padding_and_shown_without_encodings():
    found = sass.parse(LISTING)
    assert [(each.arch, each.name) for each in found] == [
        *(("sm_90", "vector_add"), ("sm_120", "vector_add"), ("sm_86", "smem")),
    ]
    for each in found:
        assert each.instructions[-1].target != each.instructions[-1].address and each.instructions[-1].opcode != "NOP"
    text = function("sm_90").text()
    assert "00060    @P0 EXIT\n" in text and "LDG.E" in text and "/*" not in text
    assert text.count("\n") == len(function("sm_90").instructions)
    assert sass.parse("") == ()


def test_histogram_counts_opcodes_with_modifiers_and_without_predicates():
    histogram = function("sm_86").histogram
    counts = {"LDS.128": 8, "LDS": 32, "STS": 2, "BAR.SYNC.DEFER_BLOCKING": 2, "FFMA": 33}
    assert counts.items() <= histogram.items()
    assert not any(opcode.startswith("@") for opcode in histogram)
    assert sum(histogram.values()) == len(function("sm_86").instructions)
    assert (function("sm_86").barriers, function("sm_90").barriers) == (1, 0)


def test_innermost_loop_with_most_arithmetic_is_chosen():
    found = function(
        "sm_90",
        listing(
            "FFMA R0, R0, R0, R0",  # 00: the outer loop starts
            "FADD R1, R1, R1",  # 10: first inner loop, one addition
            "@P0 BRA 0x10",  # 20
            "FFMA R0, R0, R0, R0",  # 30: second inner loop, two multiply-adds
            "FFMA R0, R0, R0, R0",  # 40
            "BRA.U UP0, 0x30",  # 50
            "@!P1 BRA 0x0",  # 60
            "EXIT",
        ),
    )
    assert [instruction.address for instruction in found.hot_loop] == [0x30, 0x40, 0x50]


def test_a_loop_that_only_waits_hides_no_loop_around_it():
    found = function(
        "sm_90",
        listing(
            "FADD R1, R1, R1",  # 00
            "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R4], R3",  # 10: waits for a barrier
            "@!P0 BRA 0x10",  # 20
            "HGMMA.64x128x16.F32.BF16 R24, gdesc[UR12], R24",  # 30
            "@P1 BRA 0x10",  # 40
            "EXIT",
        ),
    )
    assert [instruction.address for instruction in found.hot_loop] == [0x10, 0x20, 0x30, 0x40]
    waiting = function("sm_90", listing("NOP", "SYNCS.PHASECHK P0, [R4], R3", "@!P0 BRA 0x10", "EXIT"))
    assert [instruction.address for instruction in waiting.hot_loop] == [0x10, 0x20]
    assert function("sm_90", listing("FFMA R0, R0, R0, R0", "@P0 BRA 0x30", "NOP", "EXIT")).hot_loop == ()
