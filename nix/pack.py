"""Packs a root file system without a container engine, into the same bytes every time.

``pack.py labels DOCKERFILE OUT``, ``pack.py sif SQUASHFS OUT``, or
``pack.py oci ROOT OUT NAME DOCKERFILE VARIABLE=VALUE…``
"""

import hashlib
import io
import json
import os
import re
import shlex
import shutil
import struct
import sys
import tarfile
from pathlib import Path


def labels(recipe: Path) -> dict[str, str]:
    """What the LABEL instructions of a Dockerfile say, by name."""
    lines = re.sub(r"\\\n", " ", recipe.read_text()).splitlines()
    given = [word for line in lines if line.startswith("LABEL ") for word in shlex.split(line)[1:]]
    return dict(word.partition("=")[::2] for word in given)


def write_sif(squashfs: Path, out: Path) -> None:
    """A SIF with one object, the primary system partition.

    Source: the format's description in github.com/apptainer/sif, pkg/sif: a header of 128 bytes, a table of 48
    descriptors of 585 bytes, and data; numbers are little-endian.
    """
    table, data = 4096, 32768
    size = squashfs.stat().st_size
    digest = hashlib.file_digest(squashfs.open("rb"), "sha256").digest()
    head = struct.pack("<32s10s3s3s16s", b"#!/usr/bin/env run-singularity\n", b"SIF_MAGIC", b"01", b"02", digest[:16])
    head += struct.pack("<8q", 0, 0, 47, 48, table, 48 * 585, data, size)
    partition, group, squash, system = 0x4004, 0xF0000001, 1, 2
    descriptor = struct.pack("<iBIII", partition, True, 1, group, 0)
    descriptor += struct.pack("<7q", data, size, size, 0, 0, 0, 0)
    descriptor += struct.pack("<128s384s", squashfs.name.encode(), struct.pack("<ii3s", squash, system, b"02"))
    with out.open("wb") as file:
        file.write(head.ljust(table, b"\0") + descriptor.ljust(data - table, b"\0"))
        with squashfs.open("rb") as source:
            shutil.copyfileobj(source, file, 1 << 20)


def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Root's, and of no time."""
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = "root"
    return info


def write_layer(root: Path, out: Path) -> None:
    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT) as tar:
        for folder, folders, files in os.walk(root):
            folders.sort()
            for name in sorted(folders + files):
                path = Path(folder) / name
                tar.add(path, str(path.relative_to(root)), recursive=False, filter=plain)


def write_oci(root: Path, out: Path, name: str, recipe: Path, variables: list[str]) -> None:
    """An OCI image layout in a tar, with Docker's manifest.json beside it for engines that know only that.

    Source: the OCI image specification, version 1.1, and the Docker image specification, version 1.2.
    """
    layer = out.with_suffix(".layer")
    write_layer(root, layer)
    blobs: dict[str, bytes] = {}

    def blob(value: object) -> dict[str, object]:
        data = json.dumps(value, sort_keys=True).encode()
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"digest": f"sha256:{digest}", "size": len(data)}

    digest = hashlib.file_digest(layer.open("rb"), "sha256").hexdigest()
    config = blob(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": {"Env": variables, "Cmd": ["/bin/sh"], "Labels": labels(recipe)},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    )
    kind = "application/vnd.oci.image."
    layers = [{"mediaType": f"{kind}layer.v1.tar", "digest": f"sha256:{digest}", "size": layer.stat().st_size}]
    manifest = blob(
        {
            "schemaVersion": 2,
            "mediaType": f"{kind}manifest.v1+json",
            "config": {"mediaType": f"{kind}config.v1+json", **config},
            "layers": layers,
        }
    )
    reference = {"org.opencontainers.image.ref.name": "nix", "io.containerd.image.name": f"localhost/{name}:nix"}
    index = {
        "schemaVersion": 2,
        "manifests": [{"mediaType": f"{kind}manifest.v1+json", **manifest, "annotations": reference}],
    }
    place = "blobs/sha256/"
    docker = [
        {
            "Config": place + str(config["digest"]).removeprefix("sha256:"),
            "RepoTags": [f"localhost/{name}:nix"],
            "Layers": [place + digest],
        }
    ]
    texts = {"oci-layout": {"imageLayoutVersion": "1.0.0"}, "index.json": index, "manifest.json": docker}
    files = {path: json.dumps(text, sort_keys=True).encode() for path, text in texts.items()}
    files |= {place + key: data for key, data in blobs.items()}
    with tarfile.open(out, "w") as tar:
        for path in sorted(files):
            info = plain(tarfile.TarInfo(path))
            info.size = len(files[path])
            tar.addfile(info, io.BytesIO(files[path]))
        tar.add(layer, place + digest, filter=plain)
    layer.unlink()


kind, source, out, *rest = sys.argv[1:]
if kind == "sif":
    write_sif(Path(source), Path(out))
elif kind == "labels":
    Path(out).write_text(json.dumps(labels(Path(source)), indent=2, sort_keys=True) + "\n")
else:
    write_oci(Path(source), Path(out), rest[0], Path(rest[1]), rest[2:])
