"""CUDA graphs of launches."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any


def captured(stream: Any, calls: Iterable[Callable[[], None]]) -> Any:
    """A graph of `calls` in order, captured on a stream of CuPy and uploaded.
    If a call fails, the capture ends, and the call's own error is raised: ending a capture that broke fails as well."""
    stream.begin_capture()
    try:
        for call in calls:
            call()
    except BaseException:
        with suppress(Exception):
            stream.end_capture()
        raise
    graph = stream.end_capture()
    graph.upload(stream)
    return graph
