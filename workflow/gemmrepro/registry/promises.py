"""What a record promises of its machine code and of its results: the gates hold the kernel to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gemmrepro.operations import Shape


@dataclass(frozen=True)
class Expect:
    """One statement about a kernel's machine code: how often a SASS opcode occurs.

    Attributes:
        opcode: a regular expression for a whole opcode with its modifiers (``LDG\\.E\\.128(\\..*)?``).
        why: the idea of the rung that the opcode shows, one sentence.
        least, most: bounds on the count over the entry point, both inclusive; no `most` means no upper bound.
        archs: architectures (``90``) to which it applies; by default all that the kernel is compiled for.
    """

    opcode: str
    why: str
    least: int = 1
    most: int | None = None
    archs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """Architectures for which the compiler must refuse a source.

    The build leaves them out after the refusal; the static gate fails once the compiler accepts the source.

    Attributes:
        archs: the architectures (``80``).
        message: a regular expression that the compiler's message must contain.
        why: the reason, one sentence.
    """

    archs: tuple[str, ...]
    message: str
    why: str


@dataclass(frozen=True)
class Promises:
    """What the static and the numerical gate check.

    Attributes:
        expects: opcodes of the machine code. Of a kernel with variants, they hold for every variant.
        spills: targets (``80``) on which the kernel must spill registers; on all others it must not.
        refusals: targets that the compiler must refuse (cuTile only).
        error: the error by design of each element of C, beside the rounding of an ordinary sum: called with A[m,k] and
            B[k,n] in float64 and their array module, it returns what broadcasts to [m,n].
        error_copies: memory that `error` needs, in multiples of the bytes of A, B and C together.
        spoils: whether an Inf or NaN in A or B turns the whole affected row or column of C into NaN; `error` is not
            applied there.
        gate_shapes: shapes for the numerical gate to try because the kernel behaves differently on no smaller one.
    """

    expects: tuple[Expect, ...] = ()
    spills: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    error: Callable[[Any, Any, Any], Any] | None = None
    error_copies: int = 1
    spoils: bool = False
    gate_shapes: tuple[Shape, ...] = ()
