"""The configuration: checked against its schema and against what is there, with errors that name key and remedy."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from gemmrepro import experiments, operations, registry
from gemmrepro.core import paths, schemas
from gemmrepro.core.architectures import COMPILED
from gemmrepro.errors import UserError
from gemmrepro.gpu.slots import unsupported
from gemmrepro.host import command_line

MOST_BYTES = 1 << 40
"""The operands of one problem may fill a TiB; no GPU has as much memory."""

SHOWN = 5
"""Mistakes, and names near one of them, that one error lists."""

LISTED = 15
"""Names that are listed in full; of more, the nearest."""

OF_FAMILIES = (
    *("families", "sweep.sizes", "regimes.sizes", "tune.sizes", "compiled_once", "experiments"),
    *("sweep.counters", "sweep.toolkit_of", "sweep.cache_of", "sweep.sizes_of", "sweep.kernels_at"),
    *("regimes.kernels", "regimes.minutes"),
)
"""Keys whose keys or words are families."""


def toolkits(config: Mapping[str, Any]) -> list[str]:
    """The toolkits to build with: those that have architectures to build for."""
    return [name for name, architectures in config["build"].items() if architectures]


def check(config: Mapping[str, Any], files: Sequence[Path | str] = (), given: Mapping[str, Any] | None = None) -> None:
    """Check a whole configuration, the YAML files that it was read from, and what --config gave over them.
    Raises UserError, in one line, with the wrong keys, where each stands, and what to write instead."""
    for file in files:
        command_line.check_file(Path(file))
    violations = schemas.errors(config, "config.schema.yaml", whole_numbers=True)
    found = [(schemas.keys_of(each), schemas.told(each)) for each in violations]
    problems = sorted(f"{'.'.join(map(str, keys)) or 'the configuration'}: {why}" for keys, why in found)
    if not problems:
        checks = (_families, _gpus, _toolkits, _experiments, _sizes, _kernels)
        problems = [problem for check_part in checks for problem in check_part(config)]
    if problems:
        shown = "; ".join(" ".join(_placed(problem, files, given or {}).split()) for problem in problems[:SHOWN])
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise UserError(f"the configuration is wrong: {shown}{more}. config/config.yaml describes every key.")


def _placed(problem: str, files: Sequence[Path | str], given: Mapping[str, Any]) -> str:
    """A mistake with the place of its key: --config, or file and line; of several that have it, the last decides."""
    key, _, why = problem.partition(": ")
    words = [int(word) if word.isdigit() else word for word in key.split(".")]
    documents = [schemas.parse_yaml(schemas.text_at(Path(file))) for file in files]
    depth, last = max((schemas.depth(each, words), place) for place, each in enumerate([*documents, given]))
    if not depth:
        return problem
    return f"{schemas.place(Path(files[last]), *words) if last < len(files) else f'--config {key}'}: {why}"


def _unknown(key: str, name: str, names: Iterable[str], what: str = "kernel family", otherwise: str = "") -> str:
    """A mistake: under `key` stands a name that nothing has."""
    choice = list(names)
    if len(choice) > LISTED:
        near = difflib.get_close_matches(name, choice, n=SHOWN, cutoff=0)
        choice = [*near, f"{len(choice) - SHOWN} more"]
    return f"{key}: there is no {what} {name}; choose among {', '.join(choice)}{otherwise}"


def _families(config: Mapping[str, Any]) -> Iterator[str]:
    """Families that do not exist, or have no sizes."""
    families = registry.family_names()
    for key in OF_FAMILIES:
        named: Any = reduce(lambda value, part: value.get(part) or {}, key.split("."), config)
        yield from (_unknown(key, name, families) for name in named if name not in families)
    for name in config["families"]:
        if name in families and name not in config["sweep"]["sizes"]:
            yield f"sweep.sizes: family {name} has no sizes; add a list, such as [1024]"


def _gpus(config: Mapping[str, Any]) -> Iterator[str]:
    """A GPU that no kernel runs on; recordings, or constants of a GPU, that are not there."""
    if (gpu := config.get("gpu")) and (lacks := unsupported(gpu["capability"])):
        yield f"gpu.capability: {gpu['name']} {lacks}; give compute capability x 10, such as 90"
    recorded = sorted(path.name for path in paths.RECORDINGS.iterdir() if path.is_dir())
    if config["measure"] != "live" and (name := config["recorded_gpu"]) not in recorded:
        otherwise = ", or record it with workflow/scripts/record"
        yield _unknown("recorded_gpu", name, recorded, "folder in reports/recorded", otherwise)
    tuned = sorted({path.stem for path in paths.KERNELS_DIR.glob("*/tuned/*.json")})
    if (name := config["tuned_gpu"]) not in ("none", *tuned):
        otherwise = ", or search them with the target tune"
        yield _unknown("tuned_gpu", name, (*tuned, "none"), "GPU with tuned constants", otherwise)


def _toolkits(config: Mapping[str, Any]) -> Iterator[str]:
    """Architectures that a toolkit cannot compile for, and toolkits that are used and not built."""
    tune, built = config["tune"], toolkits(config)
    wanted = [(f"build.{toolkit}", toolkit, archs) for toolkit, archs in config["build"].items() if archs != "auto"]
    for key, toolkit, archs in [*wanted, ("tune.arch", tune["toolkit"], [tune["arch"]])]:
        for arch in sorted({*archs} - {*COMPILED[toolkit]}):
            choice = ", ".join(map(str, COMPILED[toolkit]))
            yield f"{key}: {toolkit} does not compile for {arch}; choose among {choice} (compute capability x 10)"
    if not built:
        yield "build: no toolkit has an architecture to build for; give cuda12 or cuda13 one, such as [90]"
    elif tune["toolkit"] not in built:
        yield f"tune.toolkit: {tune['toolkit']} is not built; choose one of {', '.join(built)}"
    for toolkit in config["sweep"]["toolkits"]:
        if built and toolkit not in built:
            yield f"sweep.toolkits: {toolkit} is not built; take it out, or give build.{toolkit} an architecture"


def _experiments(config: Mapping[str, Any]) -> Iterator[str]:
    """Settings of experiments that do not exist, or that the experiment refuses."""
    for family in registry.family_names():
        for name, settings in config.get("experiments", {}).get(family, {}).items():
            try:
                experiments.with_settings(experiments.experiment(family, name), settings)
            except UserError as error:
                yield f"experiments.{family}: {str(error).rstrip('.')}"


def _sizes(config: Mapping[str, Any]) -> Iterator[str]:
    """Sizes that no kernel of a family can run, sizes chosen that are not timed, and an empty range of samples."""
    sweep, families = config["sweep"], registry.family_names()
    least, most = sweep["samples_per_round"]
    if least > most:
        yield f"sweep.samples_per_round: the minimum, {least}, exceeds the maximum, {most}; swap them"
    for key in ("sweep", "regimes", "tune"):
        for family, sizes in config[key]["sizes"].items():
            for size in sizes if family in families else ():
                if reason := _refusal(family, size):
                    yield f"{key}.sizes.{family}: {reason}"
    for key in ("counters", "sizes_of", "kernels_at"):
        for family, few in (sweep.get(key) or {}).items():
            timed = sweep["sizes"].get(family, ())
            for size in command_line.sizes_in(few) if family in families else ():
                if size not in timed:
                    choice = f"sweep.sizes.{family} ({', '.join(map(str, timed)) or 'none'})"
                    yield f"sweep.{key}.{family}: {size} is not timed; choose among {choice}"


def _refusal(family: str, size: int) -> str:
    """Why no kernel of `family` whose problem depends on the size can run `size`; empty if one can."""
    reason = ""
    for kernel in registry.kernels(family):
        shape = operations.shape_of(kernel.compute.op, size)
        if shape == operations.shape_of(kernel.compute.op, 2 * size):
            continue
        if operations.nbytes(kernel.problem, shape) > MOST_BYTES:
            reason = f"{size} needs more than a TiB of memory; choose a smaller size"
            continue
        try:
            kernel.check(shape)
            return ""
        except UserError as error:
            reason = f"no kernel can run {size}; {str(error).rstrip('.')}"
    return reason


def _kernels(config: Mapping[str, Any]) -> Iterator[str]:
    """Kernels listed that their family does not time, and kernels of one's own that are no files."""
    few = {family: few["kernels"] for family, few in (config["sweep"].get("kernels_at") or {}).items() if few}
    for key, listed in (("sweep.kernels_at", few), ("regimes.kernels", config["regimes"]["kernels"])):
        for family in filter(registry.family_names().__contains__, listed):
            timed = [kernel.id for kernel in registry.kernels(family) if kernel.timing.timed]
            for name in (name for name in listed[family] if name not in timed):
                yield _unknown(f"{key}.{family}", name, timed or ["none: take the family out"], "timed kernel")
    for name in config.get("kernels", ()):
        if not name.endswith(".py") or not Path(name).is_file():
            yield f"kernels: there is no Python file {name}; write the path of one that ends in .py"
