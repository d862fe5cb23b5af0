"""Results that threads share."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest

from gemmrepro.build.cutile import Once


def test_threads_that_ask_for_one_result_share_it() -> None:
    once: Once[int] = Once()
    computed: list[str] = []
    together, go_on = Barrier(4), Event()

    def ask(key: str) -> int:
        def compute() -> int:
            computed.append(key)
            go_on.wait(5)
            return len(key)

        together.wait(5)
        return once.get(key, compute)

    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(ask, key) for key in ("one", "one", "three")]
        together.wait(5)
        go_on.set()
        assert [future.result() for future in asked] == [3, 3, 5]
    assert sorted(computed) == ["one", "three"]


def test_an_error_is_raised_at_each_call() -> None:
    once: Once[int] = Once()
    tried: list[int] = []

    def refuse() -> int:
        tried.append(1)
        raise ValueError("refused")

    for _ in range(2):
        with pytest.raises(ValueError, match="refused"):
            once.get("key", refuse)
    assert len(tried) == 1
