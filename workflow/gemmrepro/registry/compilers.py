"""Traits of compilers that every stage may read; the compilers themselves are in `gemmrepro.build.compilers`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class CompilerTraits:
    """How records differ between compilers.

    Attributes:
        takes: optional fields of a record that this compiler supports.
        reads_record: whether types, arguments and blocks come from the record; otherwise the source states them.
        chooses_block: whether the compiler chooses the block size and its code requests shared memory itself, so that
            the record's launch states neither.
        just_in_time: whether it can also compile at launch, for the arrays that are passed.
    """

    takes: frozenset[str] = frozenset()
    reads_record: bool = True
    chooses_block: bool = False
    just_in_time: bool = False

    def misplaced(self, optional: Mapping[str, object]) -> Iterator[str]:
        """Names of the non-empty fields in `optional` that this compiler does not support."""
        return (name for name, value in optional.items() if value and name not in self.takes)


COMPILERS: Mapping[str, CompilerTraits] = MappingProxyType(
    {
        "nvcc": CompilerTraits(
            takes=frozenset({"defines", "flags", "packages", "ptx", "tensor_maps"}), reads_record=False
        ),
        "cute_dsl": CompilerTraits(takes=frozenset({"tensor_maps"})),
        "cutile": CompilerTraits(takes=frozenset({"defines", "refusals"}), chooses_block=True, just_in_time=True),
    }
)
"""Compilers of CUDA C++, CuTe's Python DSL and cuTile Python, by the name in a record."""
