"""What every stage may know of a compiler without the compiler itself (which is `gemmrepro.build.compilers`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class CompilerTraits:
    """How records for one compiler differ from those for another.

    Attributes:
        takes: which of the optional fields that not every compiler understands a record may fill.
        reads_record: types, arguments and blocks come from the record; otherwise the source states them.
        chooses_block: the compiler chooses the threads of a block, and its code asks the driver for shared memory
            itself, so neither is in the record's launch.
        just_in_time: it can also compile at the time of a launch, for the arrays that are passed.
    """

    takes: frozenset[str] = frozenset()
    reads_record: bool = True
    chooses_block: bool = False
    just_in_time: bool = False

    def misplaced(self, optional: Mapping[str, object]) -> Iterator[str]:
        """Names of the fields in `optional` that a record fills although this compiler does not take them."""
        return (name for name, value in optional.items() if value and name not in self.takes)


COMPILERS: Mapping[str, CompilerTraits] = MappingProxyType(
    {
        "nvcc": CompilerTraits(
            takes=frozenset({"defines", "flags", "packages", "ptx", "tensor_maps"}), reads_record=False
        ),
        "cute_dsl": CompilerTraits(),
        "cutile": CompilerTraits(takes=frozenset({"defines", "refusals"}), chooses_block=True, just_in_time=True),
    }
)
"""What compiles a source: CUDA C++, CuTe's Python DSL, or cuTile Python."""
