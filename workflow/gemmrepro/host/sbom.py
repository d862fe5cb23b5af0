"""The bill of materials of a container image, in CycloneDX: its packages with hashes and licences.

The lock says which packages there are; the image their licences, and is refused if it holds others. It is named by the
SHA-256 of its file system, and the bill holds no date: the same image gives the same bill.
"""

import importlib.metadata
import json
import os
import re
import uuid
from argparse import Namespace
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gemmrepro import __version__
from gemmrepro.core.files import read_json, write_atomic
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.host.builders import EPOCH
from gemmrepro.host.containers import container_environment, make_caches
from gemmrepro.host.inventory import Entry
from gemmrepro.host.recipes import LOCK, Sources, normalized, packages_apart
from gemmrepro.host.sif import filesystem_sha256, list_packages

try:
    from cyclonedx.model import HashAlgorithm, HashType, Property
    from cyclonedx.model.bom import Bom, BomMetaData
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.contact import OrganizationalEntity
    from cyclonedx.model.license import DisjunctiveLicense, LicenseAcknowledgement, LicenseExpression
    from cyclonedx.model.tool import ToolRepository
    from cyclonedx.output.json import JsonV1Dot6
    from cyclonedx.spdx import is_expression, is_supported_id
    from packageurl import PackageURL
except ImportError:
    raise UserError(
        "cyclonedx cannot be imported; start the command through envs/run, or install cyclonedx-python-lib."
    ) from None

NAMES = uuid.UUID("6f0cf1a5-4a0b-5d52-9a50-2f0d6f8f1c3e")
"""The namespace of the bills' serial numbers."""

RELEASES = {"debian:12-slim": "debian-12", "debian:13-slim": "debian-13"}
"""The release of a base image, as package URLs write it."""

SAME = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "Apache-2": "Apache-2.0",
    "BSD-2-clause": "BSD-2-Clause",
    "BSD-3-clause": "BSD-3-Clause",
    "BSD-4-clause": "BSD-4-Clause",
    "Expat": "MIT",
    "MIT License": "MIT",
    "MPL-2": "MPL-2.0",
    "Other/Proprietary License": "LicenseRef-Proprietary",
    "Python Software Foundation License": "PSF-2.0",
    "ZLIB": "Zlib",
    "zlib": "Zlib",
}
"""Names that Debian's machine-readable copyright files and the classifiers of Python's packages use.
Source: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/, section "License short name"."""

GNU = re.compile(r"(GPL|LGPL|AGPL)-(\d)(\.\d)?(\+?)")


class PackageHashes:
    """SHA-256 of packages in the image `env`, by the repository's locks."""

    def __init__(self, env: str, root: Path = ROOT) -> None:
        """Raises UserError if nix/sources.json is damaged."""
        sources = Sources.read(root / LOCK)
        requirements, recipe = root / f"envs/requirements/{env}.txt", root / f"docker/{env}.Dockerfile"
        locked = requirements.read_text() if requirements.is_file() else ""
        pins = re.findall(r"^([\w.-]+)==([^\s;]+)((?:.*\\\n)*.*)$", locked, re.MULTILINE)
        self.files = sources.sha256
        self.apart = packages_apart(recipe.read_text()) if recipe.is_file() else {}
        self.allowed = {
            (normalized(name), version): tuple(re.findall(r"sha256:(\w{64})", rest)) for name, version, rest in pins
        }
        self.wheels = {}  # those that pip chooses in the image, as far as its lock still allows them
        for file in sources.environments[env].python if env in sources.environments else ():
            name, version = file.removesuffix(".tar.gz").split("-")[:2]
            if sources.sha256[file] in self.allowed.get((normalized(name), version), ()):
                self.wheels[normalized(name), version] = sources.sha256[file]

    def debian(self, name: str, version: str, arch: str) -> str | None:
        """The hash of a package of Debian's, where this version of it is locked."""
        file = f"{name}_{quote(version, safe='+~')}_{arch}.deb".replace("%3A", "%3a")
        return self.files.get(file) or self.apart.get((name, version))

    def python(self, name: str, version: str) -> tuple[str, ...]:
        """The hash of a Python package's file; all that the lock allows where it is not known which pip took."""
        package = normalized(name), version
        return (self.wheels[package],) if package in self.wheels else self.allowed.get(package, ())


def check_lock(lock: Mapping[str, Any], inventory: Mapping[str, Sequence[Entry]], sif: Path) -> None:
    """Raise UserError if an image does not hold the packages that its lock lists."""
    for kind in ("os", "python"):
        locked, inside = ({(each["name"], each["version"]) for each in found[kind]} for found in (lock, inventory))
        if odd := sorted(locked ^ inside):
            where = "its lock alone" if odd[0] in locked else "the image alone"
            raise UserError(
                f"{sif} is not the image that its lock describes ({odd[0][0]} {odd[0][1]} is in {where}); remove "
                "both, and the next run builds the image again."
            )


def component(kind: str, entry: Entry, hashes: PackageHashes, release: str) -> Component:
    """A package of Debian's (`kind` os) or of Python's; where several files may be what was installed, their hashes are
    properties instead of its hash. What was unpacked from another release has no architecture in dpkg's list."""

    name, version, arch = entry["name"], entry["version"], entry["arch"]
    if kind == "os":
        qualifiers = {"arch": arch, "distro": release} if arch else {"arch": "amd64"}
        url = PackageURL("deb", "debian", name, version, qualifiers)
        digests: Sequence[str] = tuple(filter(None, [hashes.debian(name, version, arch)]))
    else:
        url, digests = PackageURL("pypi", None, normalized(name), version), hashes.python(name, version)
    alone = len(digests) == 1
    return Component(
        type=ComponentType.LIBRARY,
        name=name,
        version=version,
        purl=url,
        bom_ref=url.to_string(),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digests[0])] if alone else [],
        properties=[] if alone else [Property(name="gemmrepro:allowed-sha256", value=digest) for digest in digests],
        licenses=licences(entry["licences"]),
        supplier=OrganizationalEntity(name="Debian") if kind == "os" else None,
    )


def spdx(name: str) -> str:
    """The identifier of a licence, or the `name` itself where SPDX has none that certainly means the same."""
    gnu = GNU.fullmatch(name)
    if gnu:
        family, major, minor, later = gnu.groups()
        return f"{family}-{major}{minor or '.0'}-{'or-later' if later else 'only'}"
    return SAME.get(name, name)


def licences(names: Sequence[str]) -> list[Any]:
    """CycloneDX's licences: one expression, or identifiers and names side by side."""

    told: Any = {"acknowledgement": LicenseAcknowledgement.DECLARED}
    known = sorted({spdx(name) for name in names})
    if len(known) == 1 and is_expression(known[0]) and not is_supported_id(known[0]):
        return [LicenseExpression(known[0], **told)]
    makers: Any = DisjunctiveLicense
    return [makers(**{"id" if is_supported_id(name) else "name": name}, **told) for name in known]


def bill(lock: Mapping[str, Any], inventory: Mapping[str, Sequence[Entry]], digest: str, hashes: PackageHashes) -> str:
    """The bill of materials of an image, which the SHA-256 of its file system names."""

    told = {
        key.replace("_", "-"): lock.get(key)
        for key in ("base", "builder", "apptainer", "recipe_sha256", "requirements_sha256")
    }
    told["hash-of"] = "the root file system in the SIF"
    name = f"gemmrepro-{lock['env']}"
    image = Component(
        type=ComponentType.CONTAINER,
        name=name,
        version=__version__,
        bom_ref=name,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
        properties=[Property(name=f"gemmrepro:{key}", value=value) for key, value in told.items() if value],
    )
    release = RELEASES.get(lock["base"].split(" ")[0], "debian")
    parts = [component("os", entry, hashes, release) for entry in inventory["os"]]
    unique = {(normalized(entry["name"]), entry["version"]): entry for entry in inventory["python"]}
    parts += [component("python", entry, hashes, release) for entry in unique.values()]
    library = "cyclonedx-python-lib"
    tools = [
        Component(type=ComponentType.APPLICATION, name="gemmrepro", version=__version__),
        Component(type=ComponentType.LIBRARY, name=library, version=importlib.metadata.version(library)),
    ]
    when = datetime.fromtimestamp(EPOCH, UTC)  # of the files that a build writes: no two bills differ by theirs
    metadata = BomMetaData(tools=ToolRepository(components=tools), component=image, timestamp=when)
    made = Bom(components=parts, metadata=metadata, serial_number=uuid.uuid5(NAMES, digest))
    made.register_dependency(image, parts)
    return JsonV1Dot6(made).output_as_string(indent=2) + "\n"


def main(options: Namespace) -> int:
    environ = {**os.environ, **container_environment(os.environ)}
    make_caches(environ)
    lock = read_json(options.lock, "the image's lock file", "build the image again")
    inventory = list_packages(options.sif, environ)
    check_lock(lock, inventory, options.sif)
    written = bill(lock, inventory, filesystem_sha256(options.sif, environ), PackageHashes(options.env))
    write_atomic(options.out, written)
    parts = json.loads(written)["components"]
    with_hash, with_licence = (sum(kind in part for part in parts) for kind in ("hashes", "licenses"))
    print(f"{options.out}: {len(parts)} packages, {with_hash} with their hash, {with_licence} with their licence")
    return 0
