"""A finished run as an RO-Crate: what was made, from what, by which steps, when and in which images.

It follows Provenance Run Crate 0.5 (https://w3id.org/ro/wfrun/provenance/0.5) and holds the report, the verdicts, every
table, gate and build record, and their sources and recordings. Binaries and images are named by SHA-256 (RFC 6920).
"""

import hashlib
import json
import mimetypes
import os
import shutil
from argparse import Namespace
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import yaml

import gemmrepro
from gemmrepro.core.names import OWN_PAGE, REPORT_FOLDERS, REPORT_PAGES
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.host.runs import record_path

try:
    from rocrate.model.contextentity import ContextEntity
    from rocrate.rocrate import ROCrate
except ImportError as error:
    raise UserError(
        f"{error.name} cannot be imported; put `envs/run` before the command, or install the package rocrate."
    ) from None

TARGETS = (
    *(f"reports/{page}.html" for page in REPORT_PAGES),
    *(f"reports/{folder}" for folder in REPORT_FOLDERS),
    "results/verdicts.json",
)
NAMED_ONLY = (".fatbin", ".sass", ".sif")
WORKFLOW = "Snakefile"
LICENSE = "https://spdx.org/licenses/MIT"
TERMS = "https://w3id.org/ro/terms/workflow-run#"
SNAKEMAKE = "https://snakemake.github.io"

WORKFLOW_CRATE = "https://w3id.org/workflowhub/workflow-ro-crate/1.0"

PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/ro/wfrun/provenance/0.5": "Provenance Run Crate",
    WORKFLOW_CRATE: "Workflow RO-Crate",
}

COMPUTATIONAL_WORKFLOW = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"


@dataclass(frozen=True)
class Job:
    """A finished job. `inputs`, `outputs`: paths relative to the folder of the run; outputs as far as they were asked
    for. `command`: the shell command, empty for a rule in Python. `start`, `end`: seconds since 1970."""

    rule: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    command: str
    image: str
    start: float
    end: float


def targets(folder: Path) -> list[str]:
    """The targets of a run: TARGETS, and the page of kernels of one's own where it made one."""
    own = f"reports/{OWN_PAGE}"
    return [*TARGETS, *([own] if (folder / own).is_file() else [])]


def jobs_behind(targets: Iterable[str], folder: Path) -> list[Job]:
    """Every job that `targets`, paths relative to `folder`, rest on, in the order in which they ended.
    Raises UserError if a target has no record of Snakemake's, or a record cannot be read."""
    jobs: dict[tuple[object, ...], Job] = {}
    pending, seen, targets = list(targets), set[str](), set(targets)
    while pending:
        path = pending.pop()
        if path in seen:
            continue
        seen.add(path)
        record = record_path(path, folder)
        if not record.is_file():
            if path in targets:
                raise UserError(f"nothing is recorded about how {path} was made; run the target 'all' first.")
            continue
        try:
            entry = json.loads(record.read_text())
            start, end = sorted((float(entry["starttime"]), float(entry["endtime"])))
            command, image = str(entry["shellcmd"] or ""), str(entry["container_img_url"] or "")
            job = Job(entry["rule"], tuple(entry["input"]), (path,), command, image, start, end)
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"Snakemake's record of {path} is not usable; delete {path} and run the target 'all' again."
            ) from None
        key = (job.rule, job.inputs, job.command)
        if other := jobs.get(key):  # the record of another of its outputs
            outputs = tuple(sorted({*other.outputs, *job.outputs}))
            job = replace(job, outputs=outputs, start=min(other.start, job.start), end=max(other.end, job.end))
        jobs[key] = job
        pending += job.inputs
    return sorted(jobs.values(), key=lambda job: (job.end, job.rule, job.outputs))


class Run:
    """A finished run in its folder as the entities of `crate`: its jobs, in the order in which they ended."""

    def __init__(self, folder: Path, jobs: Sequence[Job]) -> None:
        self._folder, self._jobs = folder, jobs
        self.file, self._digest = cache(self._file), cache(self._sha256)
        self.rules: dict[str, dict[str, Job]] = {}  # jobs by name, by rule, in the order of the rules' first jobs
        for job in jobs:
            of_rule = self.rules.setdefault(job.rule, {})
            of_rule[f"#job-{job.rule}-{len(of_rule) + 1}"] = job
        self.crate = ROCrate(version="1.1")
        # The terms that RO-Crate 1.1 lacks; naming their context would need the network.
        terms = {name: TERMS + name for name in ("sha256", "containerImage", "ContainerImage")}
        self.crate.metadata.extra_terms.update(terms)
        self._describe()

    def _describe(self) -> None:
        """The crate itself, its workflow, its steps and what they did."""
        citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
        root = self.crate.root_dataset
        authors = [
            self._entity(f"#author-{place}", "Organization", name=author["name"])
            for place, author in enumerate(citation["authors"], 1)
        ]
        root["name"] = f"A run of gemmrepro {gemmrepro.__version__}"
        root["description"], root["author"] = citation["abstract"], _one(authors)
        root["datePublished"] = _time(self._jobs[-1].end)
        page = f"{LICENSE}.html"
        root["license"] = self._entity(LICENSE, "CreativeWork", name="MIT License", identifier=page)
        root["conformsTo"] = [
            self._entity(profile, "CreativeWork", name=name, version=profile.rpartition("/")[2])
            for profile, name in PROFILES.items()
        ]
        run = self._action(
            "#run",
            name="The run of the workflow",
            instrument=self._workflow(citation["abstract"], authors),
            object=self._used(),
            result=[self.file(path) for path in targets(self._folder)],
            start=min(job.start for job in self._jobs),
            end=self._jobs[-1].end,
        )
        actions = [self._job(name, job) for jobs in self.rules.values() for name, job in jobs.items()]
        forms = [{"@id": form} for form in ("https://w3id.org/ro/crate/1.1", WORKFLOW_CRATE)]
        self._entity("ro-crate-metadata.json", "CreativeWork")["conformsTo"] = forms
        root["mentions"] = [run, *actions]

    def _workflow(self, abstract: str, authors: Sequence[Any]) -> Any:
        link = {"@id": SNAKEMAKE}
        named = {"name": "Snakemake", "alternateName": "SMK", "url": link, "identifier": link}
        form = {"name": "ComputationalWorkflow", "version": "1.0-RELEASE"}
        properties = {
            "@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"],
            "name": "gemmrepro",
            "description": abstract,
            "version": gemmrepro.__version__,
            "programmingLanguage": self._entity("#snakemake-language", "ComputerLanguage", **named),
            "author": _one(authors),
            "creator": _one(authors),
            "conformsTo": self._entity(COMPUTATIONAL_WORKFLOW, "CreativeWork", **form),
            "license": {"@id": LICENSE},
            "encodingFormat": "text/x-snakemake",
        }
        workflow = self.crate.add_file(ROOT / WORKFLOW, WORKFLOW, properties=properties)
        self.crate.mainEntity = workflow
        tools = []
        for place, (rule, jobs) in enumerate(self.rules.items(), 1):
            # A rule's purpose is its first command, without the arguments.
            words = min(job.command for job in jobs.values()).split()
            told = {"name": rule, "description": " ".join(words[:3]) or "Python in the rule"}
            told["softwareVersion"] = gemmrepro.__version__
            tools.append(self._entity(f"#rule-{rule}", "SoftwareApplication", **told))
            step = {"name": rule, "position": str(place), "workExample": tools[-1]}
            workflow.append_to("step", self._entity(f"{WORKFLOW}#{rule}", "HowToStep", **step))
        workflow["hasPart"] = tools
        for path in sorted((ROOT / "workflow" / "rules").glob("*.smk")):
            self.crate.add_file(path, path.relative_to(ROOT).as_posix(), properties={"name": path.name})
        return workflow

    def _used(self) -> list[Any]:
        """Files that no job made: sources, settings, recordings."""
        made = {path for job in self._jobs for path in job.outputs}
        return [self.file(path) for path in sorted({path for job in self._jobs for path in job.inputs} - made)]

    def _job(self, name: str, job: Job) -> Any:
        told = {"object": _one([self.file(path) for path in job.inputs])} if job.inputs else {}
        told |= {"description": job.command} if job.command else {}
        if job.image:
            image = {"additionalType": {"@id": TERMS + "SIFImage"}, "sha256": self._digest(job.image)}
            stem = Path(job.image).stem
            told["containerImage"] = self._entity(f"#image-{stem}", "ContainerImage", name=stem, **image)
        return self._action(
            name,
            name=f"{job.rule}: {job.outputs[0]}",
            instrument={"@id": f"#rule-{job.rule}"},
            result=_one([self.file(path) for path in job.outputs]),
            start=job.start,
            end=job.end,
            **told,
        )

    def _action(self, identifier: str, /, *, start: float, end: float, **properties: Any) -> Any:
        ended = {"endTime": _time(end), "actionStatus": "http://schema.org/CompletedActionStatus"}
        return self._entity(identifier, "CreateAction", startTime=_time(start), **ended, **properties)

    def _entity(self, identifier: str, kind: str, /, **properties: Any) -> Any:
        """The contextual entity of this name; the properties count the first time."""
        if entity := self.crate.dereference(identifier):
            return entity
        entity = ContextEntity(self.crate, identifier, properties={"@type": kind})
        self.crate.add(entity)
        for name, value in properties.items():
            entity[name] = value
        return entity

    def _file(self, path: str) -> Any:
        """The entity of a file or folder of the run, else of the checkout; copied unless it is too large.
        Raises UserError if it is missing."""
        source = self._folder / path
        full = Path(os.path.normpath(source))
        inside = full.relative_to(self._folder if full.is_relative_to(self._folder) else ROOT).as_posix()
        if source.is_dir():
            return self.crate.add_dataset(source, inside, properties={"name": inside})
        if not source.is_file():
            raise UserError(f"{path} is missing; run the target 'all' again, then 'crate'.")
        status, digest = source.stat(), self._digest(path)
        properties = {"name": inside, "sha256": digest, "contentSize": str(status.st_size)}
        properties["dateModified"] = _time(status.st_mtime)
        if kind := mimetypes.guess_type(source.name)[0]:
            properties["encodingFormat"] = kind
        if inside.endswith(NAMED_ONLY):
            name = urlsafe_b64encode(bytes.fromhex(digest)).decode().rstrip("=")
            return self._entity(f"ni:///sha-256;{name}", "CreativeWork", **properties)
        return self.crate.dereference(inside) or self.crate.add_file(source, inside, properties=properties)

    def _sha256(self, path: str) -> str:
        with (self._folder / path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def _one(values: Sequence[Any]) -> Any:
    """A value alone instead of a list of one, as RO-Crate recommends."""
    return values[0] if len(values) == 1 else list(values)


def _time(seconds: float) -> str:
    """Seconds since 1970 as ISO 8601, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def main(options: Namespace, folder: Path | None = None) -> int:
    """Write the crate of the run in `folder`, by default the current one, to the folder `options.out`.
    Raises UserError if the run is not finished, or rocrate is not installed."""
    folder = folder or Path.cwd()
    jobs = jobs_behind(targets(folder), folder)
    crate = Run(folder, jobs).crate
    shutil.rmtree(options.out, ignore_errors=True)
    crate.write(options.out)
    print(f"{options.out}: {len(jobs)} jobs, {len(crate.get_entities())} entities")
    return 0
