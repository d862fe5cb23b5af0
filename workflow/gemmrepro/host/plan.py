"""The plan of a workflow run: configuration, machine and registry turned into the rules' inputs.

Paths are relative to the folder in which Snakemake runs: this repository, or that of a workflow that uses this one as a
module. What is made goes below that folder; what is committed comes from the checkout.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from gemmrepro import experiments, registry
from gemmrepro.core.architectures import COMPILED, KNOWN, compiles
from gemmrepro.core.files import csv_text, write_atomic, write_json
from gemmrepro.core.paths import ROOT
from gemmrepro.core.trees import source_hash
from gemmrepro.errors import UserError
from gemmrepro.experiments import Experiment
from gemmrepro.gpu.slots import HostGpu
from gemmrepro.host import config as configuration
from gemmrepro.judge.metrics import METRICS
from gemmrepro.measure import recording, rows
from gemmrepro.measure import regimes as regime_files
from gemmrepro.measure.plan import one_of
from gemmrepro.measure.recording import FILES, MANIFEST, SUMMARY
from gemmrepro.registry import Kernel, articles
from gemmrepro.registry.requirements import newest_target, requirement

LONGEST = 250
"""The most `Plan.effort` of one job that builds, some two minutes on one core: ten kernels with CUTLASS's headers."""


@dataclass(frozen=True)
class Plan:
    """One run's plan: its checked configuration, whether it measures ``live`` or reads what was ``recorded``, the GPU.
    `only`: the kernels whose builds or gates alone are asked for; empty if anything may be."""

    config: Mapping[str, Any]
    measure: str
    gpu: HostGpu | None
    only: frozenset[str] = frozenset()

    @property
    def families(self) -> list[str]:
        return list(self.config["families"])

    @property
    def live(self) -> bool:
        return self.measure == "live"

    @property
    def recordings(self) -> str:
        """The folder of recordings that are used when nothing is measured live."""
        return checked_out(f"reports/recorded/{self.config['recorded_gpu']}")

    @cached_property
    def other_gpus(self) -> list[str]:
        """The other recordings that hold rows of the configured families: the report shows the GPUs side by side."""
        own = Path(self.recordings)
        return sorted(
            folder.name
            for folder in own.parent.iterdir()
            if folder.is_dir()
            and (self.live or folder.name != own.name)
            and any((folder / family / SUMMARY).is_file() for family in self.families)
        )

    @property
    def toolkits(self) -> list[str]:
        return configuration.toolkits(self.config)

    @cached_property
    def kernels(self) -> dict[str, Kernel]:
        """Kernels by id, without those for which no configured toolkit has an architecture."""
        configured = (kernel for family in self.families for kernel in registry.kernels(family))
        return {kernel.id: kernel for kernel in configured if self.toolkits_of(kernel)}

    def kernels_of(self, family: str) -> list[Kernel]:
        return [kernel for kernel in self.kernels.values() if kernel.family == family]

    def together(self, family: str, toolkit: str = "") -> list[Kernel]:
        """The kernels of a family that one job builds (with `toolkit`) or judges: all, or those asked for where the
        family was never built as a whole."""
        kernels = [kernel for kernel in self.kernels_of(family) if not toolkit or toolkit in self.toolkits_of(kernel)]
        if not self.only or all(Path(path).exists() for path in self.builds_in([family])):
            return kernels
        return [kernel for kernel in kernels if kernel.id in self.only]

    def judged_together(self) -> dict[str, list[Kernel]]:
        """The kernels that one job judges, by its name: the family where something is measured; else ``recorded``, of
        all families, or of those of the kernels asked for where the families were never all built."""
        families = self.families
        if not self.live and self.only and not all(Path(path).exists() for path in self.builds_in(families)):
            families = [name for name in families if any(kernel.id in self.only for kernel in self.kernels_of(name))]
        judged = {name: kernels for name in families if (kernels := self.together(name))}
        if self.live or not judged:
            return judged
        return {"recorded": [kernel for kernels in judged.values() for kernel in kernels]}

    def batches(self, family: str, toolkit: str) -> list[list[Kernel]]:
        """`together` in parts of about the same effort and none above `LONGEST`, for jobs that run side by side.
        A part is what reruns together, so it does not depend on the number of cores."""
        kernels = self.together(family, toolkit)
        total = sum(self.effort(kernel, toolkit) for kernel in kernels)
        parts: list[list[Kernel]] = [[] for _ in range(math.ceil(total / LONGEST) or 1)]
        before = 0
        for kernel in kernels:
            parts[min(before * len(parts) // max(1, total), len(parts) - 1)].append(kernel)
            before += self.effort(kernel, toolkit)
        return [part for part in parts if part]

    def architectures(self, kernel: Kernel, toolkit: str) -> list[str]:
        """Targets for which `toolkit` compiles `kernel`: ["80", "90"], "90" standing for its "90a" as well.
        With ``auto``, see `chosen_architectures`; else the configured list, and the GPU at hand if it can."""
        place, configured = (kernel.id, toolkit), self.config["build"][toolkit]
        if place not in self._architectures:
            if configured == "auto":
                chosen = chosen_architectures(kernel, toolkit, {*self._measuring, *self._counted.get(kernel.id, ())})
            else:
                here = [self.gpu.capability] if self.gpu else []
                chosen = [str(arch) for arch in sorted({*configured, *run_by(kernel, toolkit, here)})]
            self._architectures[place] = chosen
        return self._architectures[place]

    @cached_property
    def _architectures(self) -> dict[tuple[str, str], list[str]]:
        """By kernel and toolkit: rules ask for each some dozen times."""
        return {}

    @cached_property
    def _measuring(self) -> set[int]:
        """Capabilities of the GPUs that the rows come from, and of the one at hand."""
        recorded = None if self.live else recorded_capability(Path(self.recordings))
        return {capability for capability in (self.gpu and self.gpu.capability, recorded) if capability}

    @cached_property
    def _counted(self) -> Mapping[str, frozenset[int]]:
        return counted_kernels(self.families)

    def toolkits_of(self, kernel: Kernel) -> list[str]:
        """The toolkits that build a kernel: those that it names and that are configured for a GPU it runs on."""
        return [
            toolkit
            for toolkit in self.toolkits
            if toolkit in kernel.platform.toolkits and registry.targets(kernel, self.architectures(kernel, toolkit))
        ]

    def compiling(self, kernel: Kernel) -> list[str]:
        """The toolkits of `toolkits_of` that compile a kernel; of the others there is only a record with its build key.

        Of a family in `compiled_once` they are those whose binaries are measured, else the first that its family is
        timed with; all, if a claim counts the kernel's machine code and no package of headers makes it slow to compile.
        """
        toolkits = self.toolkits_of(kernel)
        counted = kernel.id in self._counted and not kernel.code.packages
        if kernel.family not in self.config.get("compiled_once", ()) or counted:
            return toolkits
        if self.live and (measured := self.measured_with(kernel)):
            return measured
        first = [toolkit for toolkit in self.timed_with(kernel.family) if toolkit in toolkits]
        return first[:1] or toolkits

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The configuration as the stages read it: a family's one toolkit compiles for the GPU that measures.
        Where the configured one (then in `sweep.instead_of`) does not, it is the next of `sweep.toolkits` that does."""
        sweep = self.config["sweep"]
        able = [name for name in sweep["toolkits"] if self.live and compiles(name, self._capability)]
        chosen = sweep.get("toolkit_of") or {}
        unable = {family: name for family, name in chosen.items() if name in {*sweep["toolkits"]} - {*able}}
        if not able or not unable:
            return dict(self.config)
        toolkits = {**chosen, **dict.fromkeys(unable, able[0])}
        return {**self.config, "sweep": {**sweep, "toolkit_of": toolkits, "instead_of": unable}}

    @property
    def _capability(self) -> tuple[int, int]:
        """The compute capability of the GPU at hand; without one, of none that is."""
        return divmod(self.gpu.capability if self.gpu else 0, 10)

    def timed_with(self, family: str) -> tuple[str, ...]:
        """The toolkits whose binaries a family's sweep and its experiments run."""
        return one_of(self.settings["sweep"], "toolkit", family)

    def runs(self, kernel: Kernel) -> list[str]:
        """The toolkits of `toolkits_of` whose binaries of a kernel the GPU that measures can run."""
        if kernel.id not in self._needs:
            self._needs[kernel.id] = requirement(kernel, self._capability)
        if self._needs[kernel.id]:
            return []
        return [toolkit for toolkit in self.toolkits_of(kernel) if newest_target(kernel, toolkit, self._capability)]

    @cached_property
    def _needs(self) -> dict[str, str]:
        """Needs that the GPU at hand lacks, by kernel; as for `_architectures`."""
        return {}

    def measured_with(self, kernel: Kernel) -> list[str]:
        """The toolkits whose binaries of a kernel a live run measures: in the sweep, the regimes or an experiment."""
        used = set(self._in_experiments.get(kernel.id, ()))
        if kernel.timing.timed:
            used.update(self.timed_with(kernel.family))
            used.update(self._in_regimes(kernel))
        return [toolkit for toolkit in self.runs(kernel) if toolkit in used]

    def _in_regimes(self, kernel: Kernel) -> list[str]:
        """The toolkit whose binary of a timed kernel the regimes measure, if any."""
        regimes = self.config["regimes"]
        chosen = kernel.id in regimes["kernels"].get(kernel.family, [kernel.id])
        if not chosen or not regimes["sizes"].get(kernel.family):
            return []
        built = self.runs(kernel)
        return [toolkit for toolkit in regimes["toolkits"] if toolkit in built][:1]

    @cached_property
    def idle(self) -> Idle:
        """Results that a live run does not start: the GPU can run none of the kernels, nor an experiment a library."""
        if not self.live:
            return Idle((), (), {})

        def measures(family: str, kernels: Iterable[Kernel]) -> bool:
            return any({*self.timed_with(family)} & {*self.runs(kernel)} for kernel in kernels)

        timed = {
            family: [kernel for kernel in self.kernels_of(family) if kernel.timing.timed] for family in self.families
        }
        names = {
            family: [
                own.name
                for own in declared
                if own.device == "gpu" and not own.libraries
                if not measures(family, self.experiment_kernels(family, own.name))
            ]
            for family, declared in self.experiments.items()
        }
        return Idle(
            tuple(family for family in self.families if not measures(family, timed[family])),
            tuple(family for family in self.regime_families if not any(map(self._in_regimes, timed[family]))),
            {family: own for family, own in names.items() if own},
        )

    @cached_property
    def _in_experiments(self) -> Mapping[str, set[str]]:
        toolkits = defaultdict[str, set[str]](set)
        for family, declared in self.experiments.items():
            for name in (kernel for experiment in declared for kernel in experiment.kernels):
                toolkits[name].update(self.timed_with(family))
        return toolkits

    def judged_with(self, kernel: Kernel) -> list[str]:
        """The toolkits whose binaries of a kernel the numerical gate judges on this GPU: see `gates.binaries`."""
        if self.config["gates"]["binaries"] == "all":
            return self.compiling(kernel)
        return self.measured_with(kernel)

    def judges(self, family: str) -> bool:
        """Whether a live run judges the numbers of a kernel of the family on the GPU."""
        return self.live and any(self.judged_with(kernel) for kernel in self.kernels_of(family))

    def numbers_of(self, family: str) -> list[str]:
        """Files that the verdicts on a family's numbers are read from."""
        if self.live:
            return [f"results/gates/numeric/{family}"] if self.judges(family) else []
        return self.recorded(family, "gates.json")

    def evidence(self, family: str) -> str:
        """The options of the gates that say where the verdicts on numbers are, and for which GPU they are missing."""
        if not self.live:
            return f"--recorded {self.recordings}"
        numeric = f"--numeric results/gates/numeric/{family} " if self.judges(family) else ""
        return f"{numeric}--gpu {'{}.{}'.format(*self._capability)}"

    def judged_in(self, family: str, suffix: str = "json") -> list[str]:
        """Build records, or other files, of the binaries of a family that one job judges on this GPU."""
        return [
            f"results/build/{toolkit}/{kernel.id}.{suffix}"
            for kernel in self.together(family)
            for toolkit in self.judged_with(kernel)
        ]

    def effort(self, kernel: Kernel, toolkit: str) -> int:
        """About how long `toolkit` compiles `kernel`, relative to one in plain CUDA C++ (medians of one run)."""
        if toolkit not in self.compiling(kernel):
            return 0
        return max(25 if code.code.packages else 1 if code.code.compiler == "nvcc" else 3 for code in kernel.codes)

    def builds_of(self, kernel: Kernel, suffix: str = "json") -> list[str]:
        """Build records of one kernel, one per toolkit, or other files of those that compile it."""
        toolkits = self.toolkits_of(kernel) if suffix == "json" else self.compiling(kernel)
        return [f"results/build/{toolkit}/{kernel.id}.{suffix}" for toolkit in toolkits]

    def wanted(self, kernel: Kernel, toolkit: str) -> str:
        """A kernel and its architectures, as the build stage takes them: "cute.base=90"; none if not compiled."""
        archs = self.architectures(kernel, toolkit) if toolkit in self.compiling(kernel) else []
        return f"{kernel.id}={','.join(archs)}"

    def builds_in(self, families: Iterable[str], suffix: str = "json") -> list[str]:
        """The same for every kernel of some families."""
        return [
            path for name in families for kernel in self.kernels_of(name) for path in self.builds_of(kernel, suffix)
        ]

    def gates_in(self, families: Iterable[str]) -> list[str]:
        return [f"results/gates/{kernel.id}.json" for name in families for kernel in self.kernels_of(name)]

    def recorded(self, family: str, *names: str) -> list[str]:
        """The committed recordings of a family that exist; a family that was never measured has none."""
        return [path for name in names if Path(path := f"{self.recordings}/{family}/{name}").is_file()]

    def measurements(self, families: Iterable[str]) -> list[str]:
        return [f"results/measure/{family}/{name}" for family in families for name in FILES]

    @cached_property
    def regime_families(self) -> list[str]:
        """The families that have rows of the regimes: those with sizes if they are measured here, else with takes."""
        sizes = self.config["regimes"]["sizes"]
        if self.live:
            return [family for family in self.families if sizes.get(family)]
        return [family for family in self.families if self.recorded_takes(family)]

    def nothing_of(self, families: Iterable[str]) -> list[str]:
        """The files of `idle`, which say that nothing was measured."""
        idle = [family for family in families if family in self.idle.sweeps]
        regimes = [f"results/regimes/{family}/{name}" for family in self.idle.regimes for name in regime_files.FILES]
        made = [path for family, names in self.idle.experiments.items() for path in _made(family, names)]
        return [*self.measurements(idle), *regimes, *made]

    def recorded_takes(self, family: str) -> list[str]:
        """The files of a family's committed takes, and the manifest that lists them."""
        folder = Path(self.recordings)
        takes = [f"{take}/{name}" for take in regime_files.takes(folder, family) for name in regime_files.FILES]
        return [*takes, f"{folder}/{family}/{MANIFEST}"] if takes else []

    def regimes(self) -> list[str]:
        """The rows of the regimes, of every family that has some."""
        return [f"results/regimes/{family}/{name}" for family in self.regime_families for name in regime_files.FILES]

    @cached_property
    def experiments(self) -> dict[str, tuple[Experiment, ...]]:
        return {family: experiments.declared(family) for family in self.families}

    @property
    def experiments_with_pytorch(self) -> set[str]:
        """The names of experiments that run in PyTorch's image: those that need it and, where such are configured at
        all, those that compare something with it."""
        every = [experiment for of_family in self.experiments.values() for experiment in of_family]
        needed = {experiment.name for experiment in every if "torch" in experiment.packages}
        compared = {each.name for each in every if any(name.partition(".")[0] == "torch" for name in each.libraries)}
        return needed | compared if needed else set()

    def experiments_here(self, family: str) -> list[str]:
        """The names of a family's experiments that run here; the others are taken from the recordings."""
        on_cpu, idle = self.config["measure_cpu"] == "live", self.idle.experiments.get(family, ())
        declared = [each for each in self.experiments[family] if each.name not in idle]
        return [each.name for each in declared if (on_cpu if each.device == "cpu" else self.live)]

    @property
    def runs_on_cpu_here(self) -> bool:
        """Whether experiments that need no GPU run on this CPU, instead of their recordings."""
        declared = (experiment for of_family in self.experiments.values() for experiment in of_family)
        return self.config["measure_cpu"] == "live" and any(experiment.device == "cpu" for experiment in declared)

    def experiment_files(self, families: Iterable[str]) -> list[str]:
        """Rows and circumstances of every experiment of some families."""
        return [path for name in families for path in _made(name, (each.name for each in self.experiments[name]))]

    def experiment_kernels(self, family: str, name: str) -> list[Kernel]:
        """The configured kernels that an experiment runs."""
        wanted = experiments.experiment(family, name).kernels
        return [self.kernels[kernel] for kernel in wanted if kernel in self.kernels]

    def experiment_settings(self, family: str, names: Iterable[str]) -> str:
        """The configured settings of some experiments of a family, as JSON by their names."""
        configured = self.config.get("experiments", {}).get(family, {})
        return json.dumps({name: configured[name] for name in names if name in configured})

    def figures(self) -> dict[str, tuple[str, ...]]:
        return {family: names for family in self.families if (names := experiments.figure_names(family))}


@dataclass(frozen=True)
class Idle:
    """Measurements of a live run without anything to measure: families' sweeps and regimes, experiments by family."""

    sweeps: tuple[str, ...]
    regimes: tuple[str, ...]
    experiments: Mapping[str, Sequence[str]]


def _made(family: str, names: Iterable[str]) -> list[str]:
    """Files that some experiments of a family write."""
    return [f"results/experiments/{family}/{name}.{suffix}" for name in names for suffix in ("csv", "json")]


def relative(paths: Iterable[Path]) -> list[str]:
    """Paths as rules name them."""
    return [os.path.relpath(path) for path in paths]


def checked_out(path: str) -> str:
    """A committed file or folder, given relative to the repository's root, as rules name it."""
    return os.path.relpath(ROOT / path)


def contents(paths: Iterable[str | Path], *, whole: bool = False) -> str:
    """16 hex digits that change with what programs read of some files, or with their names.
    `whole`: count comments in code, which the report shows, too. Raises OSError."""
    hashes = sorted((Path(path).name, _hash(Path(path), whole)) for path in paths)
    return hashlib.sha256(repr(hashes).encode()).hexdigest()[:16]


@cache
def _hash(path: Path, whole: bool) -> str:
    if path.suffix in (".cu", ".cuh", ".py") and not whole:
        return source_hash(path)
    data = path.read_bytes()
    if path.suffix in (".Dockerfile", ".txt"):
        data = b"\n".join(line for line in data.splitlines() if not line.lstrip().startswith(b"#"))
    return hashlib.sha256(data).hexdigest()


def recorded_capability(recordings: Path) -> int | None:
    """The capability of the GPU whose recordings are in a folder; None if it holds none."""
    for path in sorted(recordings.glob("*/run.json")):
        try:
            major, minor = json.loads(path.read_text())["gpu"]["compute_capability"].split(".")
            return 10 * int(major) + int(minor)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # the stage that reads it says what is wrong with it
    return None


def counted_kernels(families: Iterable[str]) -> Mapping[str, frozenset[int]]:
    """Architectures whose machine code claims on the kernels of `families` count, by kernel.
    A claim names one (`compute.arch`), or means those of the GPUs that its article prints figures of. The claims are
    read unchecked, since this is part of every start; the stage that judges them checks them."""
    families = set(families)
    counted = defaultdict[str, set[int]](set)
    for name in articles.article_names():
        chips = (articles.chip_of(name, hardware) for hardware in articles.article(name).hardware)
        own = {chip.capability for chip in chips if chip}
        try:
            claims = articles.declared(articles.folder(name) / articles.CLAIMS)
        except UserError:
            continue
        for compute in (claim.get("compute") or {} for claim in claims):
            metric = METRICS.get(str(compute.get("metric")))
            if metric is None or metric.way != "count" or (metric.word == "calculated" and "arch" not in compute):
                continue  # counters are read, or nothing is
            named = str(compute.get("arch", "")).removeprefix("sm_").rstrip("af")
            kernels = [str(compute[key]) for key in ("kernel", "over") if key in compute]
            for kernel in [*kernels, *compute.get("kernels", ())]:
                if kernel.split(".")[0] in families:
                    counted[kernel] |= {int(named)} if named.isdigit() else own
    return {kernel: frozenset(archs) for kernel, archs in counted.items()}


def chosen_architectures(kernel: Kernel, toolkit: str, wanted: Collection[int]) -> list[str]:
    """Targets of `kernel` with `toolkit` if `wanted` are wanted: ["80", "90"]; empty if it has no suitable target.
    One that suits none of them is compiled for the oldest architecture that it suits, so that its machine code can be
    judged; one whose promises all concern other architectures for the oldest of those as well."""
    possible = [arch for arch in KNOWN if arch in COMPILED[toolkit] and _compiles(kernel, arch)]
    archs = run_by(kernel, toolkit, wanted)
    if not any(_compiles(kernel, arch) for arch in archs):
        archs |= set(possible[:1])
    expects = [expect for code in kernel.codes for expect in code.promises.expects]
    everywhere = not all(expect.archs for expect in expects)
    promised = set() if everywhere else {int(arch.rstrip("af")) for expect in expects for arch in expect.archs}
    if promised and not promised & archs:
        archs |= set([arch for arch in possible if arch in promised][:1])
    return [str(arch) for arch in sorted(archs)]


def run_by(kernel: Kernel, toolkit: str, wanted: Iterable[int]) -> set[int]:
    """The architectures of `toolkit` whose code of `kernel` the GPUs of some capabilities run, its newest for each."""
    return {arch for each in wanted if (arch := newest_target(kernel, toolkit, divmod(each, 10)))}


def _compiles(kernel: Kernel, arch: int) -> bool:
    """Whether the kernel has a target for `arch` that its compiler is not expected to refuse."""
    return any(not kernel.promises.refuses(target) for target in registry.targets(kernel, [str(arch)]))


def write_nothing(
    results: Path, sweeps: Iterable[str], regimes: Iterable[str], of_experiments: Mapping[str, Iterable[str]]
) -> None:
    """Write the files of these families' sweeps and regimes, and of experiments by family, without rows."""
    for family in sweeps:
        recording.write_nothing(results / "measure" / family)
    for family in regimes:
        rows.write_no_regimes(results / "regimes" / family)
    for family, names in of_experiments.items():
        for name in names:
            place = results / "experiments" / family / name
            header = experiments.experiment(family, name).header
            write_atomic(place.with_suffix(".csv"), csv_text([], header))
            write_json(place.with_suffix(".json"), {"source": "none"})
