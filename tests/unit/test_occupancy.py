"""Blocks per SM: what recordings hold for a kernel's registers and shared memory follows from them."""

import pytest

from gemmrepro.gpu.loaded import Multiprocessor

HOPPER = Multiprocessor(count=132, registers=65536, shared_bytes=228 * 1024, reserved_bytes=1024)
ADA = Multiprocessor(count=128, registers=65536, shared_bytes=100 * 1024, reserved_bytes=1024)


@pytest.mark.parametrize(
    ("registers", "threads", "blocks"),
    # As Nsight Compute gave them on an H200: ladder, cute, ada and hopper at 4096.
    [
        *((32, 1024, 2), (56, 32, 36), (32, 64, 32), (44, 512, 2), (165, 128, 3), (154, 160, 2), (168, 384, 1)),
    ],
)
def test_registers_allow_as_many_blocks_as_recorded(registers: int, threads: int, blocks: int) -> None:
    assert HOPPER.by_registers(registers, threads) == blocks


@pytest.mark.parametrize(
    ("shared_bytes", "blocks"),
    [(16384, 13), (98304, 2), (229440, 1), (229504, 1), (65536, 3), (0, 228), (16392, 13), (32776, 6)],
)
def test_shared_memory_allows_blocks_with_what_the_driver_adds(shared_bytes: int, blocks: int) -> None:
    assert HOPPER.by_shared_memory(shared_bytes) == blocks


def test_an_sm_with_less_shared_memory_holds_fewer_blocks() -> None:
    assert ADA.by_shared_memory(49152) == 2 and HOPPER.by_shared_memory(49152) == 4
    assert ADA.by_shared_memory(100 * 1024) == 0
