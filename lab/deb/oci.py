# SPDX-License-Identifier: GPL-2.0-only
"""`make oci`: an image of the Debian package, as an OCI archive: the program, what it loads, and no shell.
No registry is asked, and the same package gives the same bytes."""

import gzip
import hashlib
import io
import json
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab import proc
from lab.deb import build as deb
from lab.errors import Exit, LabError
from lab.paths import BUILD
from lab.vm import initramfs

DIRECTORY = BUILD / "oci"
PROGRAM = "usr/sbin/mthp_ext"
_TAKEN = re.compile(
    r"usr/sbin/mthp_ext|etc/mthp_ext/config\.toml|usr/share/doc/mthp-ext/(copyright|mthp_ext\.cdx\.json)"
)
"""What of the package is in it."""
_EMPTY = ("dev", "proc", "sys", "run/mthp_ext", "tmp")
"""Places to mount something: the root is read-only."""
_LINKS = {"lib": "usr/lib", "lib64": "usr/lib64"}
_IMAGE = "application/vnd.oci.image."


@dataclass
class Tree:
    """What is in an image, by path."""

    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    """Contents and mode."""
    links: dict[str, str] = field(default_factory=dict)
    directories: set[str] = field(default_factory=set)

    def tar(self, seconds: int) -> bytes:
        """As a layer; the same bytes for the same tree."""
        out = io.BytesIO()
        directories = {*self.directories}
        for name in [*self.files, *self.links, *self.directories]:
            directories |= {str(parent) for parent in Path(name).parents if str(parent) != "."}
        with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for name in sorted({*directories, *self.files, *self.links}):
                info = tarfile.TarInfo(name)
                info.mtime = seconds
                data = b""
                if name in self.files:
                    data, info.mode = self.files[name]
                    info.size = len(data)
                elif name in self.links:
                    info.type, info.linkname, info.mode = tarfile.SYMTYPE, self.links[name], 0o777
                else:
                    info.type, info.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
                archive.addfile(info, io.BytesIO(data))
        return out.getvalue()


def _of_package(package: Path, tree: Tree) -> None:
    done = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(package)], capture_output=True, check=False)
    if done.returncode != 0:
        raise LabError(Exit.BUILD, f"{package} is no package: {done.stderr.decode(errors='replace').strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        for member in archive:
            name = member.name.removeprefix("./")
            content = archive.extractfile(member) if _TAKEN.fullmatch(name) else None
            if content is not None:
                tree.files[name] = content.read(), member.mode & 0o777
    if PROGRAM not in tree.files:
        raise LabError(Exit.BUILD, f"{package} has no {PROGRAM}")


def _merged(path: Path) -> str:
    """Below /usr, where Debian has it."""
    name = str(path).lstrip("/")
    return name if name.startswith("usr/") else f"usr/{name}"


def _owner(library: Path) -> str:
    """The Debian package of a library; its record has the path before or behind the merge of /usr."""
    for path in (library, library.resolve(), Path("/", str(library.resolve()).removeprefix("/usr/"))):
        done = subprocess.run(["dpkg-query", "-S", str(path)], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.split(": ")[0].split(",")[0]
    raise LabError(Exit.HOST, f"{library} is of no Debian package, so nobody knows its licence")


def _libraries(tree: Tree) -> None:
    """Adds what the program loads, with the records by which scanners know its packages."""
    with tempfile.TemporaryDirectory() as scratch:
        program = Path(scratch) / "mthp_ext"
        program.write_bytes(tree.files[PROGRAM][0])
        program.chmod(0o755)
        libraries = initramfs.libraries(program)
    owners = set()
    for library in libraries:
        tree.files[_merged(library)] = library.read_bytes(), 0o755
        owners.add(_owner(library))
    for owner in sorted(owners):
        name = owner.partition(":")[0]
        record = proc.output(["dpkg-query", "-s", owner], what=f"asking for {owner}", code=Exit.HOST)
        tree.files[f"var/lib/dpkg/status.d/{name}"] = record.encode(), 0o644
        licence = Path("/usr/share/doc") / name / "copyright"
        tree.files[_merged(licence)] = licence.read_bytes(), 0o644


def tree_of(package: Path) -> Tree:
    """What of a package, and of this machine's release, is in its image."""
    tree = Tree(links=dict(_LINKS), directories={*_EMPTY})
    _of_package(package, tree)
    _libraries(tree)
    tree.files["etc/os-release"] = Path("/etc/os-release").read_bytes(), 0o644
    tree.files["etc/passwd"] = b"root:x:0:0:root:/:/usr/sbin/nologin\n", 0o644
    tree.files["etc/group"] = b"root:x:0:\n", 0o644
    record = proc.output(["dpkg-deb", "--field", str(package)], what="reading the package", code=Exit.BUILD)
    tree.files[f"var/lib/dpkg/status.d/{deb.NAME}"] = record.encode(), 0o644
    return tree


def tag(version: str) -> str:
    """A version as a registry takes it."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", version)


def archive(tree: Tree, version: str, commit: str, when: datetime) -> bytes:
    """The image as an OCI archive."""
    seconds = int(when.timestamp())
    created = when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    blobs: dict[str, bytes] = {}

    def blob(kind: str, data: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": _IMAGE + kind, "digest": f"sha256:{digest}", "size": len(data)}

    def document(value: Mapping[str, Any]) -> bytes:
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    labels = {
        "org.opencontainers.image.title": "mthp_ext",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.revision": commit,
        "org.opencontainers.image.licenses": "GPL-2.0-only",
        "org.opencontainers.image.created": created,
    }
    layer = tree.tar(seconds)
    config = {
        "created": created,
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "User": "0:0",
            "Entrypoint": [f"/{PROGRAM}"],
            "Cmd": ["run"],
            "Env": ["PATH=/usr/sbin"],
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created": created, "created_by": "make oci"}],
    }  # fmt: skip
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_IMAGE}manifest.v1+json",
        "config": blob("config.v1+json", document(config)),
        "layers": [blob("layer.v1.tar+gzip", gzip.compress(layer, mtime=0))],
        "annotations": labels,
    }
    named = {
        **blob("manifest.v1+json", document(manifest)),
        "annotations": {"org.opencontainers.image.ref.name": tag(version)},
        "platform": {"architecture": "amd64", "os": "linux"},
    }
    index = {"schemaVersion": 2, "mediaType": f"{_IMAGE}index.v1+json", "manifests": [named]}
    parts = {"oci-layout": document({"imageLayoutVersion": "1.0.0"}), "index.json": document(index), **blobs}
    return Tree(files={name: (data, 0o644) for name, data in parts.items()}).tar(seconds)


def version_of(package: Path) -> str:
    """By its name."""
    return package.name.split("_")[1]


def image(package: Path) -> Path:
    """Makes the image of a package that `make deb` made of this checkout."""
    of = deb.source()
    version = version_of(package)
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    path = DIRECTORY / f"{deb.NAME}_{tag(version)}.oci.tar"
    scratch = path.with_suffix(".part")
    scratch.write_bytes(archive(tree_of(package), version, of.commit, of.when))
    scratch.replace(path)
    return path


def main() -> int:
    """`make oci`."""
    package = deb.package()
    path = image(package)
    print(f"oci: tag {tag(version_of(package))}, {path.stat().st_size >> 10} KiB; SHA-256 {deb.sha256(path)}")
    print(path)
    return Exit.OK
