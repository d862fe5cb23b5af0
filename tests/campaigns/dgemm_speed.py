"""gemmrepro.dgemm beside cuBLAS's DGEMM, sustained: each way alone for some seconds, in turn, several times.

    PYTHONPATH=workflow python tests/campaigns/dgemm_speed.py --sizes 4096 8192 16384 --out speed.json

Ways: cuBLAS; dgemm as it is; with B prepared; both with the kernels of crt.overlapped, if they are built. Inputs:
(u - 1/2) exp(phi g). Prints the median milliseconds, the median ratio to cuBLAS in the same round, how dgemm decided,
and how long the host takes for a call on an idle GPU. A line takes rounds x seconds; all three sizes some six minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow"))

import cupy as cp

import gemmrepro
from gemmrepro.blas import program

Way = Callable[[], Any]

LAWS: tuple[tuple[str, float, str], ...] = (
    ("phi = 0.5", 0.5, "sqrt"),
    ("phi = 0.5, gamma = k u", 0.5, "worst"),
    ("phi = 1", 1.0, "sqrt"),
    ("phi = 2", 2.0, "sqrt"),
    ("phi = 2.7", 2.7, "sqrt"),
    ("phi = 4", 4.0, "sqrt"),
)
"""Name, phi and accuracy: 14, 13, 15, 16 moduli; what passes the glance and fails in most tiles; what fails at once."""


def ways(a: Any, b: Any, c: Any, accuracy: str) -> dict[str, Way]:
    """Calls that write C = A B; those of dgemm return how it was made."""
    found: dict[str, Way] = {"cuBLAS": lambda: cp.matmul(a, b, out=c)}
    binaries = {"": None, ", R11": program.BUILT / f"{program.NEXT}.fatbin"}
    for ending, binary in binaries.items():
        if binary is not None and not binary.is_file():
            continue
        shared = gemmrepro.prepare(b, binary=binary)
        for name, right in (("dgemm", b), ("prepared", shared)):
            more = {"accuracy": accuracy, "details": True, "binary": binary}
            found[name + ending] = lambda right=right, more=more: gemmrepro.dgemm(a, right, c, **more)[1]
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


def lines(n: int, law: tuple[str, float, str], rounds: int, seconds: float) -> Iterator[dict[str, Any]]:
    """What came out of each way at size n."""
    name, phi, accuracy = law
    rng = cp.random.RandomState(1)
    draw = lambda: (rng.random_sample((n, n)) - 0.5) * cp.exp(phi * rng.standard_normal((n, n)))  # noqa: E731
    a, b, c = draw(), draw(), cp.empty((n, n))
    calls = ways(a, b, c, accuracy)
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


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096, 8192, 16384])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each way in each round")
    parser.add_argument("--inputs", nargs="+", default=[law[0] for law in LAWS], choices=[law[0] for law in LAWS])
    parser.add_argument("--out", type=Path, help="all of it, in JSON")
    arguments = parser.parse_args()
    found = []
    for n in arguments.sizes:
        for law in (each for each in LAWS if each[0] in arguments.inputs):
            for line in lines(n, law, arguments.rounds, arguments.seconds):
                found.append(line)
                said = (
                    f"{line['moduli']} moduli, {line['native_tiles']} tiles in double"
                    if line["moduli"] is not None
                    else ""
                )
                head = f"{n:6} {line['input']:23} {line['way']:14} {line['ms']:9.3f} ms {line['ratio']:6.3f}"
                print(f"{head}  host {line['host_ms']:.2f} ms  {said}", flush=True)
            if arguments.out:
                arguments.out.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
