"""GPU architectures as compilers name them ("80", "90a"): which GPU runs which code, and what their SMs have."""

import re
from collections.abc import Collection, Iterable

from gemmrepro.errors import UserError

COMPILED = {"cuda12": (75, 80, 86, 87, 89, 90), "cuda13": (75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121)}
"""The architectures that each toolkit of the images compiles for, oldest first."""

KNOWN = (80, 86, 89, 90, 100, 120)
"""The architectures that records of kernels speak of, oldest first."""

GENERATIONS = {
    **{7: ("Volta", "Turing"), 8: ("Ampere", "Ada"), 9: ("Hopper",)},
    **{10: ("data-center Blackwell",), 11: ("Thor",), 12: ("RTX Blackwell",)},
}
"""The names of GPUs by the major version of their compute capability."""

# KiB of shared memory that a block may have when it opts in, by compute capability x 10 (CUDA C++ Programming Guide).
_SHARED_KIB = {
    **{70: 96, 72: 96, 75: 64, 80: 163, 86: 99, 87: 163, 89: 99},
    **{90: 227, 100: 227, 103: 227, 110: 227, 120: 99, 121: 99},
}


def pick_arch(archs: Iterable[str], capability: tuple[int, int]) -> str | None:
    """The architecture among `archs` ("sm_90a") whose machine code a GPU of `capability` runs, or None.
    Machine code runs on its own major version at the same or a later minor version; code for an architecture-specific
    target (``sm_90a``) only on that version (CUDA C++ Programming Guide, "Binary Compatibility")."""
    fitting = []
    for match in filter(None, (re.fullmatch(r"sm_(\d+)(\d)([af]?)", arch) for arch in archs)):
        major, minor, special = int(match[1]), int(match[2]), match[3]
        if major == capability[0] and (minor == capability[1] if special == "a" else minor <= capability[1]):
            fitting.append((minor, bool(special), match[0]))
    return max(fitting, key=lambda code: code[:2])[2] if fitting else None


def newest(archs: Iterable[str], capability: tuple[int, int]) -> int | None:
    """The same of `archs` ("90a"), as a number."""
    picked = pick_arch((f"sm_{arch}" for arch in archs), capability)
    return number(picked) if picked else None


def compiles(toolkit: str, capability: tuple[int, int]) -> int | None:
    """The architecture for which `toolkit` compiles what a GPU of `capability` runs; None if there is none."""
    return newest(map(str, COMPILED[toolkit]), capability)


def described(arch: str) -> str:
    """The architecture whose description in records holds for `arch`: the newest before it of its major version."""
    found = newest(map(str, KNOWN), divmod(number(arch), 10))
    return arch if found in (None, number(arch)) else str(found)


def is_among(arch: str, names: Collection[str]) -> bool:
    """Whether `names`, of a record's statement about architectures, mean `arch` ("sm_87" or "87") too."""
    bare = arch.removeprefix("sm_")
    return bare in names or described(bare) in names


def number(arch: str) -> int:
    """Compute capability x 10 of an architecture: 90 of "sm_90a"."""
    return int(re.sub(r"\D", "", arch))


def shared_limit(arch: str) -> int:
    """The most shared memory of a block on `arch` in bytes; if unlisted, the least of its major version, or of all."""
    asked = number(arch)
    own = [kib for listed, kib in _SHARED_KIB.items() if listed // 10 == asked // 10]
    return 1024 * _SHARED_KIB.get(asked, min(own or _SHARED_KIB.values()))


def generations(archs: Iterable[str]) -> str:
    """The names of the GPUs that run code for some architectures: "Hopper or RTX Blackwell"."""
    majors = dict.fromkeys(number(arch) // 10 for arch in archs)
    names = [name for major in majors for name in GENERATIONS.get(major, (f"compute capability {major}.x",))]
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def parsed(capability: str) -> tuple[int, int]:
    """A compute capability from how it is written. Raises UserError if it is none."""
    match = re.fullmatch(r"(\d+)\.(\d)", capability)
    if match is None:
        raise UserError(f"'{capability}' is no compute capability; write it like 9.0.")
    return int(match[1]), int(match[2])


def dotted(capability: tuple[int, int]) -> str:
    """A compute capability as it is written: "9.0"."""
    return "{}.{}".format(*capability)
