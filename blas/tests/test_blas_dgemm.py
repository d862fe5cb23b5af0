"""gemmrepro_blas.dgemm without a GPU: what it refuses, and what it launches, in which order."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from blas_fakes import Gpu, OnGpu

import gemmrepro_blas
from gemmrepro import registry
from gemmrepro.operations import Shape as RecordShape
from gemmrepro.ozaki import decided
from gemmrepro_blas import UserError, certified, program
from gemmrepro_blas.matrices import Matrix, matrix
from gemmrepro_blas.table import Shape, table


@pytest.mark.parametrize(
    ("shapes", "more", "message"),
    [
        (((3, 4), (5, 6)), {}, "A is 3 x 4 and B is 5 x 6; A needs as many columns"),
        (((3, 4), (4, 6)), {"beta": 1.0}, r"beta is 1\.0, but there is no C"),
        (((3, 4), (4, 6)), {"accuracy": "best"}, "accuracy is 'best'; choose"),
        (((3, 4), (4, 6)), {"accuracy": -1.0}, r"accuracy is -1\.0; choose"),
        (((3, 4), (4, 6)), {"c": OnGpu(np.zeros((6, 3)))}, "C is 6 x 3; pass one of 3 x 6"),
        (((3, 4), (3, 6)), {"transpose_b": True}, "A is 3 x 4 and B is 6 x 3"),
        (((3, 4), (4, 6)), {"accuracy": True}, "accuracy is True; choose"),
        (((3, 4), (4, 6)), {"accuracy": float("inf")}, "accuracy is inf; choose"),
        (((3, 4), (4, 6)), {"alpha": 1j}, "alpha is 1j; pass a real number"),
        (((3, 4), (4, 6)), {"workspace": -1}, "workspace is -1; pass a number of bytes"),
        (((3, 4), (4, 6)), {"workspace": "1 GiB"}, "workspace is '1 GiB'; pass a number of bytes"),
        (((3, 4), (4, 6)), {"binary": "none.fatbin"}, r"the binary none\.fatbin is missing; install"),
    ],
)
def test_operands_that_do_not_fit_are_refused(gpu: Gpu, shapes: Any, more: dict[str, Any], message: str) -> None:
    a, b = (OnGpu(np.zeros(shape)) for shape in shapes)
    with pytest.raises(UserError, match=message):
        gemmrepro_blas.dgemm(a, b, **more)
    assert gpu.log == []


def test_c_may_lie_beside_its_factors_and_not_in_them(gpu: Gpu) -> None:
    """As an LU has them, all in one array; then with a C that reaches into A, and into B, by an element."""
    whole = np.zeros((16, 16))
    a, b = OnGpu(whole[4:, :4]), OnGpu(whole[:4, 4:])
    gemmrepro_blas.dgemm(a, b, OnGpu(whole[4:, 4:]), beta=1.0)
    assert gpu.entries() == ["cuBLAS"]
    for c, name in ((whole[4:, 3:15], "A"), (whole[3:15, 4:], "B")):
        with pytest.raises(UserError, match=f"C shares memory with {name}"):
            gemmrepro_blas.dgemm(a, b, OnGpu(c), beta=1.0)


def test_nothing_is_launched_into_a_capture_or_on_memory_of_the_host(gpu: Gpu) -> None:
    a, b, c = (OnGpu(np.zeros(shape)) for shape in ((3, 4), (4, 6), (3, 6)))
    gpu.capturing = True
    for product in (gemmrepro_blas.dgemm, lambda *_: gemmrepro_blas.prepare(b, binary=__file__)):
        with pytest.raises(UserError, match="a CUDA graph is being captured, and dgemm waits"):
            product(a, b, c)
    gpu.device = -1
    with pytest.raises(UserError, match="at an address that is no GPU's"):
        gemmrepro_blas.dgemm(a, b, c)
    assert gpu.log == []


@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_small_products_are_cublass_on_the_callers_stream(gpu: Gpu, alpha: float) -> None:
    """With alpha = 0 neither A nor B is read."""
    a, b, c = (OnGpu(np.zeros(shape)) for shape in ((3, 4), (4, 6), (3, 6)))
    got, how = gemmrepro_blas.dgemm(a, b, c, alpha=alpha, beta=3.0, details=True)
    assert got is c and (how.moduli, how.native_tiles) == (0, 1 if alpha else 0)
    ((what, _, arguments),) = gpu.log
    if alpha:
        assert what == "cuBLAS" and arguments[3:] == [(2.0, 3.0), gpu.stream]
        assert [one.pointer for one in arguments[:3]] == [each.array.ctypes.data for each in (a, b, c)]
    else:
        assert what == "scale" and arguments[1:] == [3.0, gpu.stream]


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((4096, 4096, 4096), True),
        ((16384, 16384, 16384), True),
        ((3008, 5008, 2000), True),
        ((1024, 8192, 8192), True),
        ((2048, 2048, 2047), False),  # below 2^33
        ((512, 512, 32768), False),
        ((128, 8192, 8192), False),
        ((8192, 128, 8192), False),
        ((65536, 1024, 1024), False),
        ((8_388_481, 512, 8192), False),  # more rows of tiles than 16 bits name
        ((512, 12_582_721, 8192), False),
    ],
)
def test_the_shape_alone_tells_where_cublas_is_faster(shape: tuple[int, int, int], wanted: bool) -> None:
    """As `kernels/crt/NOTES.md` and sweeps of odd shapes measured on an H200."""
    assert certified.pays(*shape) is wanted


@pytest.mark.parametrize("k", [1, 2, 1000, 4096, 65536])
def test_the_bound_is_no_looser_than_what_was_asked_for(k: int) -> None:
    assert certified.gamma(k, 3) == decided.gamma(k, 3)
    for accuracy in ("worst", 1e-10, 3e-15, decided.gamma(k)):
        wanted = k * 2.0**-53 if accuracy == "worst" else float(accuracy)
        given = decided.gamma(k, certified.loosening(accuracy, k))
        assert given <= wanted < 2 * given
    assert decided.gamma(k, certified.loosening("sqrt", k)) == pytest.approx(2 * k**0.5 * 2.0**-53)


def stored(rows: int, columns: int, by_columns: bool = False) -> Matrix:
    """A matrix on the fake GPU; nothing of it is read."""
    array = np.lib.stride_tricks.as_strided(np.zeros(1), (rows, columns), (8 * columns, 8), writeable=False)
    if by_columns:
        array = np.lib.stride_tricks.as_strided(np.zeros(1), (rows, columns), (8, 8 * rows), writeable=False)
    return matrix(OnGpu(array), "X")


def run(
    a: Matrix, b: Matrix, c: Matrix, workspace: int | None = None, held: Any = None, scalars: Any = (2.0, 3.0)
) -> program.Plan:
    factors = program.Factors(a, b, c, *scalars, 5, a.owner, workspace)
    return program.program(program.Path("x"), 0).run(factors, 7, held)


def names(gpu: Gpu, shape: RecordShape, matrices: dict[str, Matrix]) -> Iterator[tuple[str, Any]]:
    """Arguments of a record by name, where they are the same in every launch."""
    yield from ((name, one.pointer) for name, one in matrices.items())
    yield from (("m", shape.m), ("n", shape.n), ("k", shape.k), ("alpha", 2.0), ("beta", 3.0))


@pytest.mark.parametrize(
    ("m", "k", "plan", "left_out"),
    [
        (700, 600, (14, 30, 6), {"multiply_whole"}),
        (700, 600, (14, 36, 0), {"multiply_whole", "native_nn"}),
        (1024, 6200, (14, 48, 0), {"multiply", "native_nn"}),
        (700, 6200, (14, 36, 0), {"multiply_whole", "native_nn"}),  # 6 rows of tiles; clusters would take 8
    ],
)
def test_row_major_operands_are_launched_as_the_record_says(
    gpu: Gpu, m: int, k: int, plan: tuple[int, int, int], left_out: set[str]
) -> None:
    """The same grids and arguments, less launches without work; double comes early, on a stream that waits."""
    gpu.plan, shape = plan, RecordShape(m, 1030, k)
    run(stored(m, k), stored(k, 1030), stored(m, 1030), scalars=(7.0, 8.0))  # one of the same shape before
    gpu.log.clear()
    a, b, c = stored(m, k), stored(k, 1030), stored(m, 1030)
    assert run(a, b, c) == program.Plan(*plan)
    record = registry.kernel("crt.first_wave")
    steps = [step for step in record.own_launches if step.entry not in left_out]
    calls = [call for call in gpu.log if call[0] not in ("record", "hold", "clear")]
    assert sorted(entry for entry, _, _ in calls) == sorted(step.entry for step in steps)
    if "native_nn" not in left_out:
        calls.append(calls.pop(gpu.entries().index("native_nn") - 2))
    known, found = dict(names(gpu, shape, {"a": a, "b": b, "c": c})), dict[str, int]()
    for (entry, launch, arguments), step in zip(calls, steps, strict=True):
        wanted = step.launch(shape)
        assert entry == step.entry
        assert (launch.grid, launch.block, launch.cluster) == (wanted.grid, wanted.block, wanted.cluster)
        assert launch.shared_bytes == wanted.shared_bytes
        if entry in ("bound_others", "decide"):
            assert arguments[-2:] == [5, 0]
            arguments = [*arguments[:-2], 0, 1]
        for name, value in zip(step.arguments, arguments, strict=True):
            if isinstance(name, int) or name in known:
                assert value == (name if isinstance(name, int) else known[name]), (entry, name)
            elif name.startswith("map:"):
                assert value.address == found.setdefault(name.removeprefix("map:"), value.address)
            else:  # `some` has no tile where the kernel would share them, and the host decides that
                name = "plan" if (entry, name) == ("multiply", "some") else name
                assert value == found.setdefault(name, value), (entry, name)
    assert len(set(found.values())) == len(found)


def test_tiles_in_double_run_beside_and_are_waited_for(gpu: Gpu) -> None:
    run(stored(700, 600), stored(600, 1030), stored(700, 1030))
    at = gpu.entries().index("native_nn")
    before, after = gpu.log[at - 2 : at], gpu.log[at + 1 :]
    assert [call[0] for call in before] == ["record", "hold"] and before[1][2] == [before[0][2][0], 99]
    assert after[0][0] == "record" and after[0][2][1] == 99
    assert after[-1] == ("hold", None, [after[0][2][0], 7])


def test_shared_tiles_begin_with_cleared_counters(gpu: Gpu) -> None:
    gpu.plan = (14, 48, 0)
    run(stored(1024, 6200), stored(6200, 1030), stored(1024, 1030))
    at = gpu.entries().index("clear")
    assert gpu.log[at + 1][0] == "multiply_whole" and gpu.log[at][2] == [gpu.log[at + 1][2][3], 2, 7]


@pytest.mark.parametrize("turned", [(False, True), (True, False), (True, True)])
def test_transposed_operands_take_the_kernels_of_their_layout(gpu: Gpu, turned: tuple[bool, bool]) -> None:
    run(stored(300, 200, turned[0]), stored(200, 400, turned[1]), stored(300, 400))
    entries = gpu.entries()
    native = entries.index(f"native_{'t' if turned[0] else 'n'}{'t' if turned[1] else 'n'}")
    assert entries.count("measure_columns") == entries.count("join_columns") == turned[0] + (not turned[1])
    assert entries.count("rows_to_residues") == (not turned[0]) + turned[1]
    sample = next(arguments for entry, _, arguments in gpu.log if entry == "sample_inner")
    assert sample[1:3] == ([1, 300] if turned[0] else [200, 1]) and sample[4:6] == ([1, 200] if turned[1] else [400, 1])
    shared = gpu.log[native][1].shared_bytes
    assert shared == 5 * 8 * ((16 * 132 if turned[0] else 128 * 20) + (96 * 20 if turned[1] else 16 * 100))


@pytest.mark.parametrize(
    ("plan", "last"), [((0, 0, 36), "cuBLAS"), ((15, 36, 0), "reconstruct"), ((13, 1, 35), "reconstruct")]
)
def test_what_is_launched_follows_the_decision(gpu: Gpu, plan: tuple[int, int, int], last: str) -> None:
    """Without residues cuBLAS multiplies, with alpha and beta, and no memory is taken for residues."""
    gpu.plan = plan
    a, b, c = stored(700, 600), stored(600, 1030), stored(700, 1030)
    run(a, b, c)
    launched = [call for call in gpu.log if call[0] not in ("record", "hold")]
    assert launched[-1][0] == last and ("native_nn" in gpu.entries()) == (0 < plan[0] and 0 < plan[2])
    assert len(gpu.allocated) == (2 if plan[0] == 0 else 3)
    if plan[0] == 0:
        assert launched[-1][2] == [a, b, c, (2.0, 3.0), 7]
    else:
        assert gpu.allocated[2] >= plan[0] * (600 * (700 + 1030) + 768 * 1152)


LIMITS = {"whole": 2**30, "rows": 14_500_000, "both": 9_000_000}


@pytest.mark.parametrize("held", ["", "a", "b"])
@pytest.mark.parametrize("limit", LIMITS)
def test_blocks_cover_c_and_keep_within_what_is_granted(gpu: Gpu, limit: str, held: str) -> None:
    """Each tile of C once: listed if it takes residues, and skipped by `reconstruct` if it is made in double."""
    m, n, k = 700, 1030, 600
    a, b, c = stored(m, k), stored(k, n), stored(m, n)
    gpu.plan, gpu.kinds = (14, 35, 1), bytes([0] * 20 + [1] + [0] * 15)
    kept = program.program(program.Path("x"), 0).held(held, a if held == "a" else b, 7) if held else None
    gpu.log.clear(), gpu.allocated.clear()
    if held and limit == "both":
        with pytest.raises(UserError, match=r"workspace grants \d+ bytes to residues of 700 x 1030 x 600 and a block"):
            run(a, b, c, 3_000_000, kept)
        return
    run(a, b, c, LIMITS[limit], kept)
    own = sum(gpu.allocated) - gpu.allocated[1]  # what only the decision takes is free again
    assert own - (14 * k * (m if held == "a" else n) + 10**5 if held else 0) <= LIMITS[limit]
    writes = [arguments for what, _, arguments in gpu.log if what == "write"]
    products = [arguments for what, _, arguments in gpu.log if what == "reconstruct"]
    assert (len(writes) > 0) == (limit != "whole") and len(products) == max(1, len(writes))
    tiles, covered = 0, np.zeros((m, n), int)
    for at, (into, ld, rows, columns) in enumerate(arguments[5:9] for arguments in products):
        first = (into - c.pointer) // 8
        assert ld == n and first % n % 192 == 0 and first // n % 128 == 0
        covered[first // n : first // n + rows, first % n : first % n + columns] += 1
        if writes:
            some = np.frombuffer(writes[at][1][:8], np.int32)
            tiles += int(some[1])
    assert (covered == 1).all() and (not writes or tiles == 35)
    converted = [what for what, _, _ in gpu.log if what.startswith(("rows_to", "columns_to"))]
    assert len(converted) >= 2
    entries = [call for call in gpu.log if call[0] == "multiply"]
    assert len(entries) == len(products)


def test_a_block_lists_tiles_as_the_device_does() -> None:
    """Column by column in groups of 16 rows, the row in the upper half of a word."""
    kinds = [bytes(int((row + column) % 5 == 0) for column in range(3)) for row in range(20)]
    content = program._listed(kinds, 15)
    layout = program._lists(60).arrays
    count, total = np.frombuffer(content[:8], np.int32)
    listed = np.frombuffer(content[layout["list"][0] :][: 4 * total], np.int32)
    order = [(r, c) for g in (range(16), range(16, 20)) for c in range(3) for r in g if not kinds[r][c]]
    assert count == 15 and [(word >> 16, word & 0xFFFF) for word in listed] == order
    assert content[layout["kinds"][0] :] == b"".join(kinds)


def test_a_grant_that_does_not_even_decide_is_refused(gpu: Gpu) -> None:
    with pytest.raises(UserError, match=r"workspace is 1000 bytes and deciding how to multiply 700 x 1030 x 600 takes"):
        run(stored(700, 600), stored(600, 1030), stored(700, 1030), 1000)
    assert gpu.log == []


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("side", ["a", "b"])
def test_a_prepared_factor_is_measured_once(gpu: Gpu, side: str, turned: bool) -> None:
    """Products launch what they would without, less what is held; residues are made by the first with their number."""
    a, b, c = stored(700, 600, turned), stored(600, 1030, turned), stored(700, 1030)
    loaded = program.program(program.Path("x"), 0)
    held = loaded.held(side, a if side == "a" else b, 7)
    by_columns = turned == (side == "a")
    measured = ["measure_columns", "join_columns"] if by_columns else ["measure_rows"]
    before = ["write", "synchronize", "sample_inner", "settle_inner", *measured, "record"]
    assert gpu.entries() == before
    sample = gpu.log[2][2]
    assert sample[3 if side == "a" else 0 :][1:3] == [0, 0]
    assert sample[7:] == ([700, 1, 600] if side == "a" else [1, 1030, 600])
    residues = "columns_to_residues" if by_columns else "rows_to_residues"
    for moduli, stream in ((14, 7), (14, 7), (15, 7), (15, 8)):
        gpu.log.clear()
        gpu.plan = (moduli, 36, 0)
        new = moduli not in held.residues
        loaded.run(program.Factors(a, b, c, 2.0, 3.0, 5), stream, held)
        entries = gpu.entries()
        assert entries[0] == "hold" and entries[1] == "copy" and "sample_inner" not in entries
        others = [entry for entry in entries if entry.startswith("measure")]
        assert len(others) == 1
        lines = 700 if side == "a" else 1030
        made = [rest for entry, _, rest in gpu.log if entry == residues and rest[-2:] == [lines, 600]]
        assert len(made) == (1 if new else 0)
        if not new:
            assert entries.count("hold") == 2  # for measures, and for residues
        assert entries[-1] == "record" and gpu.log[-1][2][1] == stream
    assert sorted(held.residues) == [14, 15]
    gpu.log.clear()
    held.__del__()
    assert gpu.entries() == ["wait", "wait"]  # used on two streams
    held.uses.clear()


def test_long_sums_are_cut_into_stretches(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """beta counts once, and a prepared factor is held by stretches."""
    runs: list[Any] = []

    class Loaded:
        def held(self, side: str, one: Matrix, stream: int) -> str:
            return f"{side}{one.rows}"

        def run(self, factors: program.Factors, stream: int, held: Any) -> program.Plan:
            runs.append((factors.a.columns, factors.b.rows, factors.beta, held))
            return program.Plan(14, 1, 0)

    monkeypatch.setattr(certified, "program", lambda path, device: Loaded())
    monkeypatch.setattr(certified, "pays", lambda *shape: True)
    sizes = (3, 150_000), (150_000, 6)
    a, b = (OnGpu(stored(*size).owner.array, {"data": (at, False)}) for size, at in zip(sizes, (8, 2**30), strict=True))
    prepared = gemmrepro_blas.prepare(b, binary=__file__)
    c = OnGpu(np.zeros((3, 6)))
    for factor, held in ((b, [None] * 3), (prepared, ["b65536", "b65536", "b18928"])):
        runs.clear()
        gemmrepro_blas.dgemm(a, factor, c, beta=2.0, binary=__file__)
        assert runs == [
            (65536, 65536, 2.0, held[0]),
            (65536, 65536, 1.0, held[1]),
            (18928, 18928, 1.0, held[2]),
        ]


def test_arrays_of_a_workspace_lie_apart() -> None:
    for layout in (*program.decision(Shape(129, 385, 65)), program.residues(Shape(129, 385, 65), 13)):
        ends = 0
        for start, dtype, lengths in layout.arrays.values():
            assert start >= ends and start % 256 == 0
            ends = start + math.prod(lengths) * {"fp64": 8, "fp32": 4, "int32": 4, "int8": 1}[dtype]
        assert layout.total >= ends


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p, a, b, c: gemmrepro_blas.dgemm(p, b), "what is passed as A was prepared as B"),
        (lambda p, a, b, c: gemmrepro_blas.dgemm(a, p, transpose_b=True), "B is prepared as it is multiplied"),
        (lambda p, a, b, c: gemmrepro_blas.dgemm(p, p), "A and B are both prepared"),
        (lambda p, a, b, c: gemmrepro_blas.dgemm(b, p), "A is 4 x 6 and B is 4 x 6"),
        (lambda p, a, b, c: gemmrepro_blas.dgemm(a, p, OnGpu(c.array.T)), "C lies by columns and B was prepared"),
        (lambda p, a, b, c: gemmrepro_blas.prepare(b, name="C"), "name is 'C'; choose 'A' or 'B'"),
        (lambda p, a, b, c: gemmrepro_blas.prepare(b, binary="none"), "the binary none is missing"),
    ],
)
def test_what_was_prepared_for_something_else_is_refused(gpu: Gpu, call: Any, message: str) -> None:
    a, b, c = (OnGpu(np.zeros(shape)) for shape in ((3, 4), (4, 6), (6, 3)))
    prepared = certified.Prepared(matrix(b, "B"), "B", {})
    with pytest.raises(UserError, match=message):
        call(prepared, a, b, c)


def test_the_table_holds_the_records_launches_on_any_card() -> None:
    """Every grid and length at shapes of all kinds, evaluated from the table and from the records."""
    from gemmrepro.registry import card

    shapes = [(1, 1, 1), (129, 97, 33), (4096, 4096, 4112), (70000, 130, 65536), (128, 192, 6144)]
    for name in table()["kernels"]:
        kernel, record = program.kernel(name), registry.kernel(name)
        for sizes in shapes:
            ours, theirs = Shape(*sizes), RecordShape(*sizes)
            for sms in (132, 114, 78):
                with card.of(card.Card(sms, math.inf)):
                    for step in record.own_launches:
                        launch, wanted = kernel.steps[step.entry].launch(ours, sms), step.launch(theirs)
                        assert (launch.grid, launch.block) == (wanted.grid, wanted.block)
                        assert (launch.cluster, launch.shared_bytes) == (wanted.cluster, wanted.shared_bytes)
            for array, buffer in record.run.workspace.items():
                assert kernel.lengths(array, ours) == (buffer.dtype, buffer.lengths(theirs))
