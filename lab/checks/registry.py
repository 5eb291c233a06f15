# SPDX-License-Identifier: GPL-2.0-only
"""The line of docs/kubernetes.md that brings the image to a registry: by skopeo, into a registry on loopback. Both are
Debian's, and not installed."""

import json
import os
import re
import shlex
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab import proc
from lab.bench import packages
from lab.checks.result import Suite
from lab.deb import build as deb
from lab.errors import Exit, LabError
from lab.paths import BUILD, REPO

_PAGE = REPO / "docs" / "kubernetes.md"
_LOG = BUILD / "log" / "registry.log"
_LIBRARIES = {
    "12": {
        "libgpgme11": "usr/lib/x86_64-linux-gnu/libgpgme.so.11",
        "libassuan0": "usr/lib/x86_64-linux-gnu/libassuan.so.0",
        # Not below /usr in the package.
        "libdevmapper1.02.1": "lib/x86_64-linux-gnu/libdevmapper.so.1.02.1",
    },
    "13": {
        "libgpgme11t64": "usr/lib/x86_64-linux-gnu/libgpgme.so.11",
        "libassuan9": "usr/lib/x86_64-linux-gnu/libassuan.so.9",
        "libsqlite3-0": "usr/lib/x86_64-linux-gnu/libsqlite3.so.0",
    },
}
"""What skopeo loads beside what every Debian has, by release: package, and file."""
_START_S = 60.0


@contextmanager
def _registry(directory: Path) -> Iterator[int]:
    """A registry that keeps what it gets in a directory; its port of loopback."""
    config = directory / "registry.yml"
    # JSON is YAML, too.
    storage = {"filesystem": {"rootdirectory": str(directory / "registry")}}
    config.write_text(json.dumps({"version": 0.1, "storage": storage, "http": {"addr": "127.0.0.1:0"}}))
    _LOG.parent.mkdir(parents=True, exist_ok=True)
    server = str(packages.program("docker-registry", "usr/bin/docker-registry"))
    with _LOG.open("wb") as log:
        process = proc.start([server, "serve", str(config)], stdout=log, stderr=subprocess.STDOUT)
        try:
            end = time.monotonic() + _START_S
            while not (found := re.search(r"listening on 127\.0\.0\.1:(\d+)", _LOG.read_text())):
                if process.poll() is not None or time.monotonic() > end:
                    raise LabError(Exit.TESTS, f"the registry does not start; log: {_LOG}", log=_LOG)
                time.sleep(0.1)
            yield int(found[1])
        finally:
            proc.stop(process)


class Skopeo:
    """skopeo, without the configuration of this machine, and with its caches in a directory."""

    def __init__(self, directory: Path) -> None:
        self._path = packages.program("skopeo", "usr/bin/skopeo")
        found = [packages.program(package, name) for package, name in _LIBRARIES[deb.release()].items()]
        self._env = {
            "HOME": str(directory),
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": ":".join(dict.fromkeys(str(path.parent) for path in found)),
            # Else root has a cache in /var/lib.
            "_CONTAINERS_ROOTLESS_UID": "1",
            "XDG_RUNTIME_DIR": str(directory),
        }
        # The policy is that of a package that it depends on.
        self._options = ("--insecure-policy", f"--tmpdir={directory}", f"--registries.d={directory}")

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [str(self._path), *self._options, *words]
        return subprocess.run(
            argv, env=self._env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )


def line(page: str) -> list[str]:
    """The words of the page behind `skopeo`."""
    [found] = re.findall(r"^\$ skopeo (.*)$", page, re.MULTILINE)
    return shlex.split(found)


def here(words: Sequence[str], image: Path, tag: str, registry: str) -> list[str]:
    """The same for this image, and a registry without TLS."""
    found = []
    for word in words:
        one = re.sub(r"^oci-archive:.*", f"oci-archive:{image}", word)
        found.append(re.sub(r"^docker://[^/]+/([^:]+):.*", rf"docker://{registry}/\1:{tag}", one))
    return [*found[:1], "--dest-tls-verify=false", *found[1:]]


def manifest(image: Path) -> dict[str, Any]:
    """What the index of an archive says of its one image."""
    with tarfile.open(image) as archive:
        file = archive.extractfile("index.json")
        assert file is not None
        [found] = json.loads(file.read())["manifests"]
    return dict(found)


def check(suite: Suite, image: Path) -> None:
    """By skopeo, into a registry, and what it finds there."""
    named = manifest(image)
    tag = str(named["annotations"]["org.opencontainers.image.ref.name"])
    with tempfile.TemporaryDirectory() as scratch:
        skopeo = Skopeo(Path(scratch))
        done = skopeo("inspect", f"oci-archive:{image}")
        seen = json.loads(done.stdout) if done.returncode == 0 else {}
        ok = seen.get("Digest") == named["digest"] and seen.get("Architecture") == "amd64"
        suite.check("skopeo reads the archive", ok, done.stdout + done.stderr)
        with _registry(Path(scratch)) as port:
            words = here(line(_PAGE.read_text()), image, tag, f"127.0.0.1:{port}")
            done = skopeo(*words)
            suite.check("skopeo copies it into a registry, as the page has it", done.returncode == 0, done.stderr)
            there = skopeo("inspect", "--tls-verify=false", words[-1])
            seen = json.loads(there.stdout) if there.returncode == 0 else {}
            ok = seen.get("Digest") == named["digest"] and seen.get("RepoTags") == [tag]
            suite.check("the registry has it by the same digest, and by its tag", ok, there.stdout + there.stderr)
