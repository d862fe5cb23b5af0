"""What a record promises about machine code and results; the gates check it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gemmrepro.core.architectures import is_among
from gemmrepro.operations import Shape


@dataclass(frozen=True)
class Expect:
    """One statement about a kernel's machine code: how often a SASS opcode occurs.

    Attributes:
        opcode: a regular expression for a whole opcode with its modifiers (``LDG\\.E\\.128(\\..*)?``).
        why: the idea that the opcode shows, one sentence.
        least, most: inclusive bounds on the count in the entry point's code; None means no upper bound.
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
        expects: opcodes of the machine code; they apply to every variant of a kernel.
        spills: targets on which the kernel must spill registers, of one toolkit (``cuda13:80``) or of each (``80``); on
            all others it must not.
        refusals: targets that the compiler must refuse (cuTile only).
        error: a bound on the error of each element of AB by the scheme's design, in addition to the rounding of an
            ordinary sum; |alpha| scales it. It takes A[m,k] and B[k,n] in float64 and their array module, and returns
            an array that broadcasts to [m,n].
        error_copies: memory that `error` needs, in multiples of the bytes of A, B and C together.
        spoils: whether an Inf or NaN in A or B turns the whole affected row or column of C into NaN; `error` is not
            applied there.
        gate_shapes: additional shapes for the numerical gate, on which the kernel takes paths that smaller ones do not;
            a `PerCard` where they depend on the card.
    """

    expects: tuple[Expect, ...] = ()
    spills: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    error: Callable[[Any, Any, Any], Any] | None = None
    error_copies: int = 1
    spoils: bool = False
    gate_shapes: Sequence[Shape] = ()

    def refuses(self, arch: str) -> tuple[Refusal, ...]:
        """The refusals that hold for `arch` ("80", "sm_80"); also for one that no record names (`is_among`)."""
        return tuple(refusal for refusal in self.refusals if is_among(arch, refusal.archs))
