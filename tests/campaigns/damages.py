"""What a power cut makes of a file's content."""

from __future__ import annotations


def emptied(data: bytes) -> bytes:
    return b""


def halved(data: bytes) -> bytes:
    return data[: len(data) // 2]


def zeros(data: bytes) -> bytes:
    return bytes(len(data))
