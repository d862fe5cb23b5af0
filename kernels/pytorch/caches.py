"""Caches that may hand back what was compiled before: after an edit, after a change of mode, in a new process.

Each probe asks one question of one cache and answers it by running code, on the CPU. `stale`: 1 where something
compiled before the change was run after it, 0 where not.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SCRIPT, COMPILE = "torch.jit.script", "torch.compile"
PROBES = {
    "backend": (COMPILE, "compiled again with another backend, without a reset"),
    "mode": (COMPILE, "compiled again in another mode, without a reset"),
    "interrupted": (COMPILE, "compiled again after an interrupt"),
    "scripted again": (SCRIPT, "the same function scripted a second time"),
    "redefined": (SCRIPT, "a function defined again under the same name"),
    "edited": (SCRIPT, "a file edited after it was imported"),
    "disk": (COMPILE, "the same formula in a second process"),
}


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _source(add: int) -> str:
    return f"import torch\n\n\ndef shift(x: torch.Tensor) -> torch.Tensor:\n    return x + {add}\n"


def backend(torch: Any) -> dict[str, Any]:
    """Whether code compiled for one backend is run after torch.compile was asked for another."""
    torch._dynamo.reset()
    ran: list[str] = []

    def make(name: str) -> Any:
        def compiler(graph: Any, inputs: Any) -> Any:
            def run(*arguments: Any) -> Any:
                ran.append(name)
                return graph.forward(*arguments)

            return run

        return compiler

    def shift(x: Any) -> Any:
        return x + 1

    x = torch.zeros(4)
    torch.compile(shift, backend=make("one"))(x)
    torch.compile(shift, backend=make("other"))(x)
    return {"stale": int(ran != ["one", "other"]), "found": f"{' then '.join(ran)} ran"}


def mode(torch: Any) -> dict[str, Any]:
    """Whether another mode of Inductor compiles anew what the default mode has compiled, or finds it."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()

    def shift(x: Any) -> Any:
        return x + 1

    x = torch.zeros(4)
    seen = []
    for name in ("default", "max-autotune-no-cudagraphs"):
        torch.compile(shift, mode=name)(x)
        seen.append(int(counters["stats"]["unique_graphs"]))
    return {"stale": int(seen[1] == seen[0]), "found": f"{seen[0]} graph, then {seen[1]}"}


def interrupted(torch: Any) -> dict[str, Any]:
    """Whether a compilation that was interrupted makes the next one fail, without a reset or a new process."""
    torch._dynamo.reset()
    attempts: list[str] = []

    def compiler(graph: Any, inputs: Any) -> Any:
        attempts.append("")
        if len(attempts) == 1:
            raise KeyboardInterrupt
        return graph.forward

    def shift(x: Any) -> Any:
        return x + 1

    compiled = torch.compile(shift, backend=compiler)
    x, said = torch.zeros(4), "the call after the interrupt gave 1"
    try:
        compiled(x)
    except KeyboardInterrupt:
        pass
    try:
        failed = float(compiled(x)[0]) != 1.0
    except Exception as error:
        failed, said = True, f"the call after the interrupt raised {type(error).__name__}"
    return {"stale": int(failed), "found": said}


def scripted_again(torch: Any) -> dict[str, Any]:
    """Whether torch.jit.script hands back what it made of a function before, and whether it does once cleared.

    Each call makes a new wrapper. A function that is compiled again gets another qualified name, since the first has
    its own; one that the cache finds comes back under that.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "again.py"
        path.write_text(_source(1))
        shift = _module(path).shift
        first, second = torch.jit.script(shift), torch.jit.script(shift)
        torch.jit._state._jit_function_overload_caching.clear()
        torch.jit._state._jit_caching_layer.clear()
        third = torch.jit.script(shift)
    again, cleared = (later.qualified_name == first.qualified_name for later in (second, third))
    said = "the same" if again else "another"
    after = "the same" if cleared else "another"
    return {"stale": int(again), "found": f"{said} function came back, and {after} after clearing"}


def redefined(torch: Any) -> dict[str, Any]:
    """Whether a function of the same name from another text is scripted anew."""
    with tempfile.TemporaryDirectory() as folder:
        results = []
        for number, add in enumerate((1, 2)):
            path = Path(folder) / f"cell{number}.py"
            path.write_text(_source(add))
            results.append(float(torch.jit.script(_module(path).shift)(torch.zeros(()))))
    return {"stale": int(results[1] == results[0]), "found": f"0 + 1 gave {results[0]:g}, 0 + 2 gave {results[1]:g}"}


def edited(torch: Any) -> dict[str, Any]:
    """Whether the scripted function is the one that was imported, once its file holds another."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "edited.py"
        path.write_text(_source(1))
        module = _module(path)
        path.write_text(_source(2))
        # A text of the same length, seconds later: what tells them apart is the time of change.
        os.utime(path, (time.time() + 5, time.time() + 5))
        eager = float(module.shift(torch.zeros(())))
        scripted = float(torch.jit.script(module.shift)(torch.zeros(())))
    return {"stale": int(eager != scripted), "found": f"the imported function gives {eager:g}, scripted {scripted:g}"}


def disk(torch: Any) -> dict[str, Any]:
    """Whether a second process finds on disk what the first one compiled, and what that saves of its first call."""
    answers = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            answer = subprocess.run(
                [sys.executable, __file__],
                env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": folder},
                capture_output=True,
                text=True,
            )
            if answer.returncode:
                from gemmrepro.errors import UserError

                said = " / ".join(answer.stderr.strip().splitlines()[-3:])
                raise UserError(f"a process that compiles failed: {said}")
            answers.append(json.loads(answer.stdout.splitlines()[-1]))
    first, second = answers
    found = f"{first['hits']} found and {first['s']:.1f} s, then {second['hits']} and {second['s']:.1f} s"
    return {"stale": int(second["hits"] > 0), "found": found, "first_s": first["s"], "second_s": second["s"]}


def on_cpu(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The row of one probe."""
    import torch

    name, _ = PROBES[point["probe"]]
    (subject,) = (each for each in context.subjects if each.kernel == name)
    probes = {
        "backend": backend,
        "mode": mode,
        "interrupted": interrupted,
        "scripted again": scripted_again,
        "redefined": redefined,
        "edited": edited,
        "disk": disk,
    }
    found = {"first_s": None, "second_s": None, **probes[point["probe"]](torch)}
    torch._dynamo.reset()
    yield context.row(subject, probe=point["probe"], **found)


def main() -> None:
    """Seconds of the first call of the compiled formula, and graphs that Inductor found on disk, as a line of JSON."""
    import torch
    from torch._dynamo.utils import counters

    formula = _module(Path(__file__).with_name("formula.py")).gelu
    x = torch.randn(1 << 12)
    start = time.perf_counter()
    torch.compile(formula)(x)
    seconds = time.perf_counter() - start
    print(json.dumps({"s": seconds, "hits": int(counters["inductor"]["fxgraph_cache_hit"])}))


if __name__ == "__main__":
    main()
