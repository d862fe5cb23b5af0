"""gemmrepro.dgemm beside cuBLAS's DGEMM, sustained: each way alone for some seconds, in turn, several times.

    PYTHONPATH=workflow python tests/campaigns/dgemm_speed.py --sizes 4096 8192 16384 --out speed.json

Ways: cuBLAS; dgemm as it is; with B prepared. Inputs:
(u - 1/2) exp(phi g), phi of A's first rows larger where only a share of the tiles is to fail. Prints the median
milliseconds, the median ratio to cuBLAS in the same round, how dgemm decided, and how long the host takes for a call on
an idle GPU. A line takes rounds x seconds; all three sizes some eight minutes. `--out` also holds every round, the GPU,
and the build keys of the binaries.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow"))

import cupy as cp

import gemmrepro
from gemmrepro.blas import certified, program
from gemmrepro.build.record import find_build
from gemmrepro.core.files import write_json
from gemmrepro.gpu import device

Way = Callable[[], Any]


@dataclass(frozen=True)
class Law:
    """Inputs (u - 1/2) exp(phi g).

    Attributes:
        accuracy: as `dgemm` takes it.
        share: of A's rows, from the first on, that have phi = 4 instead: their tiles fail with any number of moduli.
    """

    phi: float
    accuracy: str = "sqrt"
    share: float = 0.0

    def draw(self, n: int) -> tuple[cp.ndarray, cp.ndarray]:
        """A and B [n,n], the same in every run."""
        rng = cp.random.RandomState(1)
        phi_a = cp.full((n, 1), self.phi)
        phi_a[: int(n * self.share)] = 4.0

        def one(phi: Any) -> cp.ndarray:
            return (rng.random_sample((n, n)) - 0.5) * cp.exp(phi * rng.standard_normal((n, n)))

        return one(phi_a), one(self.phi)


LAWS = {
    "phi = 0.5": Law(0.5),  # 14 moduli
    "phi = 0.5, gamma = k u": Law(0.5, "worst"),  # 13
    "phi = 1": Law(1.0),  # 15
    "phi = 2": Law(2.0),  # 16
    "a quarter of the tiles": Law(0.5, share=0.25),  # in double, the others with 14
    "half of the tiles": Law(0.5, share=0.5),  # so many that dgemm should leave all to double
    "phi = 2.7": Law(2.7),  # fails in most tiles
    "phi = 4": Law(4.0),  # fails in all
}


def ways(a: Any, b: Any, c: Any, accuracy: str) -> dict[str, Way]:
    """Calls that write C = A B; those of dgemm return how it was made."""
    found: dict[str, Way] = {"cuBLAS": lambda: cp.matmul(a, b, out=c)}
    shared = gemmrepro.prepare(b)
    for name, right in (("dgemm", b), ("prepared", shared)):
        found[name] = lambda right=right: gemmrepro.dgemm(a, right, c, accuracy=accuracy, details=True)[1]
    return found


def sustained(call: Way, seconds: float) -> float:
    """Milliseconds a call, calls following one another."""
    call()
    cp.cuda.Device().synchronize()
    start, calls = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        for _ in range(4):  # cuBLAS returns at once: no more than these are queued
            call()
        cp.cuda.Device().synchronize()
        calls += 4
    return 1000 * (time.perf_counter() - start) / calls


def of_host(call: Way) -> float:
    """Milliseconds until a call returns on an idle GPU; the median of nine."""
    taken = []
    for _ in range(9):
        cp.cuda.Device().synchronize()
        start = time.perf_counter()
        call()
        taken.append(1000 * (time.perf_counter() - start))
    return statistics.median(taken)


def lines(n: int, name: str, rounds: int, seconds: float) -> Iterator[dict[str, Any]]:
    """What came out of each way at size n."""
    law = LAWS[name]
    a, b = law.draw(n)
    calls = ways(a, b, cp.empty((n, n)), law.accuracy)
    times: dict[str, list[float]] = {way: [] for way in calls}
    for _ in range(rounds):
        for way, call in calls.items():
            times[way].append(sustained(call, seconds))
    for way, call in calls.items():
        how = call()
        ratios = [base / own for base, own in zip(times["cuBLAS"], times[way], strict=True)]
        yield {
            "n": n,
            "input": name,
            "way": way,
            "ms": statistics.median(times[way]),
            "ratio": statistics.median(ratios),
            "rounds": times[way],
            "host_ms": of_host(call),
            "moduli": getattr(how, "moduli", None),
            "native_tiles": getattr(how, "native_tiles", None),
        }


def machine() -> dict[str, Any]:
    """The GPU, and what ran on it."""
    built = find_build(program.KERNEL, program.BUILT.parent, program.BUILT.name)
    keys = {program.KERNEL: built.build_key if built else None}
    cuda = cp.cuda.runtime.runtimeGetVersion()
    return {"gpu": device.open_gpu().gpu.describe(), "cuda_runtime": cuda, "build_keys": keys}


def size(text: str) -> int:
    """n of the command line: large enough for dgemm to look at the numbers."""
    if not text.isdecimal() or int(text) ** 3 < certified.SMALL:
        raise argparse.ArgumentTypeError(f"{text!r}; give n from 2048 on, below which dgemm leaves all to cuBLAS")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sizes", type=size, nargs="+", default=[4096, 8192, 16384], metavar="N")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each way in each round")
    parser.add_argument("--inputs", nargs="+", default=list(LAWS), choices=LAWS)
    parser.add_argument("--out", type=Path, help="all of it, in JSON")
    arguments = parser.parse_args()
    found = {**machine(), "rounds": arguments.rounds, "seconds": arguments.seconds, "lines": []}
    for n, name in itertools.product(arguments.sizes, arguments.inputs):
        for line in lines(n, name, arguments.rounds, arguments.seconds):
            found["lines"].append(line)
            said = "" if line["moduli"] is None else f"{line['moduli']} moduli, {line['native_tiles']} tiles in double"
            head = f"{n:6} {name:23} {line['way']:14} {line['ms']:9.3f} ms {line['ratio']:6.3f}"
            print(f"{head}  host {line['host_ms']:.2f} ms  {said}", flush=True)
        if arguments.out:
            write_json(arguments.out, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
