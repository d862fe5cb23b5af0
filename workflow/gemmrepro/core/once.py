"""Results that threads share: each is computed once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Once(Generic[Result]):
    """Results by what they follow from. A thread that asks for one while another computes it waits."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._results: dict[Hashable, Future[Result]] = {}

    def get(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """The result for `key`, by `compute` at the first call. What that raised is raised at each call."""
        with self._lock:
            first = key not in self._results
            future = self._results.setdefault(key, Future())
        if first:
            try:
                future.set_result(compute())
            except BaseException as error:
                future.set_exception(error)
        return future.result()
