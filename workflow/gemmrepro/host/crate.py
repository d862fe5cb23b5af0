"""A finished run as an RO-Crate: what was made, from what, by which steps, when and in which images.

The crate follows the profile Provenance Run Crate 0.5 of Workflow Run RO-Crate (https://w3id.org/ro/wfrun/provenance/0.5).
It holds the report, the verdicts, every table, gate and build record, and the sources and recordings that they come
from. Binaries, their machine code and the images are not copied: they are named by their SHA-256 (RFC 6920). The same
sources give the same binaries again; an image's file changes with every build and signature.
"""

from __future__ import annotations

import hashlib
import mimetypes
import os
import shutil
from argparse import Namespace
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

import gemmrepro
from gemmrepro.core.names import REPORT_FOLDERS, REPORT_PAGES
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.host.runs import Job, jobs_behind

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

PARAMETER = "https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"
COMPUTATIONAL_WORKFLOW = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"

FORMATS = {
    ".cu": "text/x-cuda",
    ".cuh": "text/x-cuda",
    ".Dockerfile": "text/x-dockerfile",
    ".j2": "text/x-jinja",
    ".json": "application/json",
    ".parquet": "application/vnd.apache.parquet",
    ".smk": "text/x-snakemake",
    ".txt": "text/plain",
    ".yaml": "application/yaml",
}
"""Media types beside those that Python knows."""


class Run:
    """A finished run, as the entities of a crate.

    Args:
        folder: where Snakemake ran.
        jobs: its jobs, in the order in which they ended.
    """

    def __init__(self, folder: Path, jobs: Sequence[Job]) -> None:
        rocrate = _library()
        self._model = rocrate.model
        self._folder = folder
        self._jobs = jobs
        self._files: dict[str, Any] = {}
        self._digests: dict[str, str] = {}
        self._actions: list[Any] = []
        self.crate = rocrate.rocrate.ROCrate(version="1.1")
        # The terms that RO-Crate 1.1 lacks; naming their context would need the network.
        self.crate.metadata.extra_terms.update(
            {name: TERMS + name for name in ("sha256", "containerImage", "ContainerImage")}
        )
        self._describe()

    @cached_property
    def rules(self) -> list[str]:
        """The rules that ran, by when their first job ended."""
        return list(dict.fromkeys(job.rule for job in self._jobs))

    def _describe(self) -> None:
        """The crate itself, its workflow, its steps and what they did."""
        citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
        root = self.crate.root_dataset
        authors = [
            self._entity(f"#author-{place}", "Organization", name=author["name"])
            for place, author in enumerate(citation["authors"], 1)
        ]
        root["name"] = f"A run of gemmrepro {gemmrepro.__version__}"
        root["description"] = citation["abstract"]
        root["author"] = _one(authors)
        root["datePublished"] = _time(self._jobs[-1].end)
        page = "https://spdx.org/licenses/MIT.html"
        root["license"] = self._entity(LICENSE, "CreativeWork", name="MIT License", identifier=page)
        root["conformsTo"] = [
            self._entity(profile, "CreativeWork", name=name, version=profile.rpartition("/")[2])
            for profile, name in PROFILES.items()
        ]
        workflow = self._workflow(citation["abstract"], authors)
        run = self._action(
            "#run",
            name="The run of the workflow",
            instrument=workflow,
            object=self._used(),
            result=[self.file(path) for path in TARGETS],
            start=min(job.start for job in self._jobs),
            end=self._jobs[-1].end,
        )
        told = {"softwareVersion": version("snakemake"), "url": {"@id": SNAKEMAKE}}
        self._entity(
            "#engine-run",
            "OrganizeAction",
            name=f"Snakemake {version('snakemake')} carries out the workflow",
            instrument=self._entity("#snakemake", "SoftwareApplication", name="Snakemake", **told),
            object=[self._control(rule) for rule in self.rules],
            result=run,
            startTime=run["startTime"],
            endTime=run["endTime"],
        )
        forms = [{"@id": form} for form in ("https://w3id.org/ro/crate/1.1", WORKFLOW_CRATE)]
        self._entity("ro-crate-metadata.json", "CreativeWork")["conformsTo"] = forms
        root["mentions"] = [run, *self._actions]

    def _workflow(self, abstract: str, authors: Sequence[Any]) -> Any:
        """The Snakefile, with a step and a tool for each rule that ran."""
        named = {
            "name": "Snakemake",
            "alternateName": "SMK",
            "url": {"@id": SNAKEMAKE},
            "identifier": {"@id": SNAKEMAKE},
        }
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
            "encodingFormat": FORMATS[".smk"],
        }
        workflow = self.crate.add_file(ROOT / WORKFLOW, WORKFLOW, properties=properties)
        self.crate.mainEntity = workflow
        tools = []
        for place, rule in enumerate(self.rules, 1):
            told = {"description": self._purpose(rule), "softwareVersion": gemmrepro.__version__}
            tool = self._entity(f"#rule-{rule}", "SoftwareApplication", name=rule, **told)
            tools.append(tool)
            step = self._entity(f"{WORKFLOW}#{rule}", "HowToStep", name=rule, position=str(place), workExample=tool)
            workflow.append_to("step", step)
        workflow["hasPart"] = tools
        for path in sorted((ROOT / "workflow" / "rules").glob("*.smk")):
            properties = _format(path) | {"name": path.name}
            self.crate.add_file(path, path.relative_to(ROOT).as_posix(), properties=properties)
        workflow["input"] = self._parameter("sources", self._used(), "sources, settings and recordings")
        workflow["output"] = [
            self._parameter(
                Path(path).stem, [self.file(path)], path, "Dataset" if (self._folder / path).is_dir() else "File"
            )
            for path in TARGETS
        ]
        return workflow

    def _purpose(self, rule: str) -> str:
        """The first command that the rule ran, without its arguments."""
        commands = sorted(job.command for job in self._jobs if job.rule == rule)
        words = commands[0].split() if commands else []
        return " ".join(words[:3]) or "Python in the rule"

    def _parameter(self, name: str, values: Iterable[Any], meaning: str, kind: str = "File") -> Any:
        form = self._entity(PARAMETER, "CreativeWork", name="FormalParameter", version="1.0-RELEASE")
        told = {"description": meaning, "additionalType": kind, "valueRequired": True, "conformsTo": form}
        parameter = self._entity(f"#parameter-{name}", "FormalParameter", name=name, **told)
        for value in values:
            value["exampleOfWork"] = parameter
        return parameter

    def _used(self) -> list[Any]:
        """What no job made: sources, settings, recordings."""
        made = {path for job in self._jobs for path in job.outputs}
        return [self.file(path) for path in sorted({path for job in self._jobs for path in job.inputs} - made)]

    def _control(self, rule: str) -> Any:
        """The engine's action for a step: it starts the step's jobs."""
        jobs = [job for job in self._jobs if job.rule == rule]
        started = _one([self._job(f"#job-{rule}-{place}", job) for place, job in enumerate(jobs, 1)])
        told = {"name": f"Start {len(jobs)} of {rule}", "instrument": {"@id": f"{WORKFLOW}#{rule}"}}
        return self._entity(f"#control-{rule}", "ControlAction", **told, object=started)

    def _job(self, name: str, job: Job) -> Any:
        action = self._action(
            name,
            name=f"{job.rule}: {job.outputs[0]}",
            instrument={"@id": f"#rule-{job.rule}"},
            result=_one([self.file(path) for path in job.outputs]),
            start=job.start,
            end=job.end,
        )
        self._actions.append(action)
        if job.inputs:
            action["object"] = _one([self.file(path) for path in job.inputs])
        if job.command:
            action["description"] = job.command
        if job.image:
            name = Path(job.image).stem
            told = {"additionalType": {"@id": TERMS + "SIFImage"}, "sha256": self._digest(job.image)}
            action["containerImage"] = self._entity(f"#image-{name}", "ContainerImage", name=name, **told)
        return action

    def _action(self, identifier: str, /, *, start: float, end: float, **properties: Any) -> Any:
        ended = {"endTime": _time(end), "actionStatus": "http://schema.org/CompletedActionStatus"}
        return self._entity(identifier, "CreateAction", startTime=_time(start), **ended, **properties)

    def _entity(self, identifier: str, kind: str, /, **properties: Any) -> Any:
        """The contextual entity of this name; the properties count the first time."""
        known = self.crate.dereference(identifier)
        if known is not None:
            return known
        entity = self._model.contextentity.ContextEntity(self.crate, identifier, properties={"@type": kind})
        self.crate.add(entity)
        for name, value in properties.items():
            entity[name] = value
        return entity

    def file(self, path: str) -> Any:
        """The entity of a file or folder, which is copied into the crate unless it is too large for that.

        Raises:
            UserError: it is missing.
        """
        if path not in self._files:
            self._files[path] = self._made_file(path)
        return self._files[path]

    def _made_file(self, path: str) -> Any:
        """It stands as in the folder of the run, or as in the checkout if it is elsewhere."""
        source = self._folder / path
        full = Path(os.path.normpath(source))
        inside = full.relative_to(self._folder if full.is_relative_to(self._folder) else ROOT).as_posix()
        if source.is_dir():
            return self.crate.add_dataset(source, inside, properties={"name": inside})
        if not source.is_file():
            raise UserError(f"{path} is missing; run the target 'all' again, then 'crate'.")
        status, digest = source.stat(), self._digest(path)
        properties = _format(source) | {"name": inside, "sha256": digest, "contentSize": str(status.st_size)}
        properties["dateModified"] = _time(status.st_mtime)
        if inside.endswith(NAMED_ONLY):
            name = urlsafe_b64encode(bytes.fromhex(digest)).decode().rstrip("=")
            return self._entity(f"ni:///sha-256;{name}", "CreativeWork", **properties)
        return self.crate.dereference(inside) or self.crate.add_file(source, inside, properties=properties)

    def _digest(self, path: str) -> str:
        if path not in self._digests:
            with (self._folder / path).open("rb") as file:
                self._digests[path] = hashlib.file_digest(file, "sha256").hexdigest()
        return self._digests[path]


def _library() -> Any:
    try:
        import rocrate.model.contextentity
        import rocrate.rocrate
    except ImportError as error:
        raise UserError(
            f"{error.name} cannot be imported; put `envs/run` before the command, or install the package rocrate."
        ) from None
    return rocrate


def _one(values: Sequence[Any]) -> Any:
    """A value alone instead of a list of one, as RO-Crate recommends."""
    return values[0] if len(values) == 1 else list(values)


def _format(path: Path) -> dict[str, str]:
    """The media type of a file, as a property, where one is known."""
    known = FORMATS.get(path.suffix) or mimetypes.guess_type(path.name)[0]
    return {"encodingFormat": known} if known else {}


def _time(seconds: float) -> str:
    """Seconds since 1970 as ISO 8601, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def write(folder: Path, out: Path) -> Mapping[str, int]:
    """Write the crate of the run in `folder` to the folder `out`; gives how many jobs and entities it describes.

    Raises:
        UserError: the run is not finished, or rocrate is not installed.
    """
    jobs = jobs_behind(TARGETS, folder)
    run = Run(folder, jobs)
    shutil.rmtree(out, ignore_errors=True)
    run.crate.write(out)
    return {"jobs": len(jobs), "entities": len(run.crate.get_entities())}


def main(options: Namespace) -> int:
    """Write the crate of the run in the current folder."""
    counts = write(Path.cwd(), options.out)
    print(f"{options.out}: {counts['jobs']} jobs, {counts['entities']} entities")
    return 0
