# SPDX-License-Identifier: GPL-2.0-only
"""Unmodified kernels of Debian 13, and the module built for each by their own compiler.

Images, headers and compiler are Debian's packages, fetched by apt beside the host's configuration and unpacked into
the cache, never installed. The compiler runs in that tree: no other builds for these kernels.
"""

import lzma
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lab import proc, space
from lab.errors import Exit, LabError
from lab.kernel.debian import Attempts, PrivateApt, host_config, mirrors
from lab.kernel.stock import newest
from lab.lock import locked
from lab.paths import BUILD, REPO, cache

_SUITES = "trixie trixie-backports"
_HEADERS = {
    "6.12": r"linux-headers-(6\.12\.\d+)\+deb13-cloud-amd64",
    "7.2": r"linux-headers-(7\.2\.\d+)\+deb13-cloud-amd64",
    "newest": r"linux-headers-(\d+\.\d+\.\d+)\+deb13-cloud-amd64",
}
"""What a kernel is called here, and its headers' package. The cloud flavour boots without its modules."""
NAMES = tuple(_HEADERS)
"""Of the kernels."""
_PASSING = ("7.2",)
"""Those that backports drop some day for a newer one."""
_TOOLS = ("make", "bash", "coreutils", "sed", "grep", "mawk", "findutils", "gcc", "libc6-dev")
_NOT_NEEDED = ("systemd", "udev", "initramfs-tools", "linux-image-", "linux-base", "klibc", "dracut", "debconf")
"""Of what those depend on: what boots a machine."""
_LOG = BUILD / "log" / "stock-module.log"
_ROOT_MIB = 1200


class GoneError(LabError):
    """A kernel that is in the archive no more."""


@dataclass(frozen=True)
class Stock:
    """An unmodified kernel."""

    name: str
    """As in the table of the tests."""
    release: str
    image: Path
    modules: Path
    """The directory of its modules."""
    root: Path
    """The tree with its headers and their compiler."""


def stock(name: str) -> Stock:
    """A kernel of that name, fetched once for each version; where no mirror answers, the one that was fetched last.
    LabError if it cannot be had, GoneError where that is no fault."""
    with locked(f"stock-{name}"):
        config = host_config()
        attempts = Attempts()
        answers, gone = False, False
        for mirror in mirrors(config):
            with tempfile.TemporaryDirectory(dir=cache()) as work:
                apt = PrivateApt(Path(work) / "apt", config, mirror, _SUITES)
                ok, text = apt.call("apt-get", "update", "--error-on=any")
                _, listing = apt.call("apt-cache", "search", "--names-only", "cloud-amd64")
                headers = newest(listing, _HEADERS[name]) if ok else None
                answers |= ok
                # Newer ones are there, and none of its.
                gone |= (
                    ok and newest(listing, _HEADERS["newest"]) is not None and f"linux-headers-{name}." not in listing
                )
                if headers is None:
                    attempts.add(f"{_SUITES} (mirror of {mirror.where})", text if not ok else "has no such headers")
                    continue
                release = headers.removeprefix("linux-headers-")
                root = cache() / "stock-module" / release
                if not root.is_dir():
                    _fetch(apt, headers, listing, Path(work) / "tree", attempts)
                    _keep(Path(work) / "tree", root)
                return _found(name, release, root)
        there = {f"linux-headers-{path.name}": path for path in (cache() / "stock-module").glob("*+deb13-cloud-amd64")}
        if not answers and (kept := newest("".join(f"{one} - \n" for one in there), _HEADERS[name])):
            why = "\n  ".join(attempts.lines)
            print(f"stock kernels: no mirror can be used, so {there[kept].name}, fetched before:\n  {why}", flush=True)
            return _found(name, there[kept].name, there[kept])
        if gone and name in _PASSING:
            raise GoneError(Exit.SOURCE, f"Debian's archive has no Linux {name} any more")
        raise LabError(Exit.SOURCE, "no stock kernel with headers could be fetched:\n  " + "\n  ".join(attempts.lines))


def _images(listing: str, release: str) -> list[str]:
    """The packages of an image, which newer kernels have apart from its modules."""
    names = {line.split(" ", 1)[0] for line in listing.splitlines()}
    apart = [f"linux-binary-unsigned-{release}", f"linux-modules-{release}"]
    return apart if set(apart) <= names else [f"linux-image-{release}-unsigned"]


def _fetch(apt: PrivateApt, headers: str, listing: str, tree: Path, attempts: Attempts) -> None:
    space.need(_ROOT_MIB, cache(), "a stock kernel with its compiler")
    images = _images(listing, headers.removeprefix("linux-headers-"))
    tools = ["apt-get", "install", "--download-only", "-y", "--no-install-recommends", headers, *_TOOLS]
    for argv in (tools, ["apt-get", "download", *images]):
        ok, text = apt.call(*argv)
        if not ok:
            attempts.add(" ".join(argv[-2:]), text)
            raise LabError(Exit.SOURCE, "\n  ".join(attempts.lines))
    for name in ("bin", "sbin", "lib", "lib64"):
        (tree / "usr" / name).mkdir(parents=True)
        (tree / name).symlink_to(f"usr/{name}")
    debs = [deb for deb in (apt.directory / "archives").glob("*.deb") if not deb.name.startswith(_NOT_NEEDED)]
    for deb in [*sorted(debs), *(apt.directory / "download").glob("*.deb")]:
        # Not `dpkg-deb -x`, which puts directories in the place of the links of merged /usr.
        unpack = 'dpkg-deb --fsys-tarfile "$0" | tar -x --keep-directory-symlink -C "$1"'
        argv = ["bash", "-o", "pipefail", "-c", unpack, str(deb), str(tree)]
        proc.run(argv, log=_LOG, what=f"unpacking {deb.name}", code=Exit.SOURCE, append=True)


def _keep(tree: Path, root: Path) -> None:
    for name in ("usr/share/doc", "usr/share/man", "usr/share/locale"):
        shutil.rmtree(tree / name, ignore_errors=True)
    for name in ("proc", "dev", "tmp", "src"):
        (tree / name).mkdir(exist_ok=True)
    # Links that maintainer scripts make.
    for link, target in (("sh", "bash"), ("awk", "mawk")):
        if not (tree / "usr/bin" / link).exists():
            (tree / "usr/bin" / link).symlink_to(target)
    root.parent.mkdir(parents=True, exist_ok=True)
    tree.rename(root)


def _found(name: str, release: str, root: Path) -> Stock:
    modules = root / "usr/lib/modules" / release
    places = (root / "boot" / f"vmlinuz-{release}", modules / "vmlinuz.unsigned", modules / "vmlinuz")
    image = next((place for place in places if place.exists()), None)
    if image is None:
        raise LabError(Exit.SOURCE, f"the packages of {release} have no image; see {root}")
    return Stock(name, release, image, modules, root)


def vmlinux(kernel: Stock) -> Path:
    """The file of its headers that has its type information."""
    return kernel.root / f"usr/src/linux-headers-{kernel.release}/vmlinux"


def build_module(kernel: Stock, variant: str = "", *, source: str | None = None, btf: bytes | None = None) -> Path:
    """The module for that kernel, built from module/ of the checkout; LabError with the compiler's complaint. A variant
    is of another source, or for the kernel with these types, and has a directory of its own."""
    with locked(f"stock-module-{kernel.release}"):
        place = f"src/mthp-{variant}" if variant else "src/mthp"
        directory = kernel.root / place
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        for one in ("Kbuild", "Makefile", "mkbtf.c", "mthp_hook.c"):
            shutil.copy2(REPO / "module" / one, directory / one)
        if source is not None:
            (directory / "mthp_hook.c").write_text(source)
            # The types are those of the kernel: made once.
            for one in ("mkbtf", "mthp_hook.btf", "mthp_btf.h"):
                if (made := kernel.root / "src/mthp" / one).exists():
                    shutil.copy2(made, directory / one)
        if btf:
            (directory / "given.btf").write_bytes(btf)
        # objtool reads /proc/self; the rest of the host's stays outside.
        script = (
            'undo() { umount "$0/dev"; [ $MTHP_BIND = rbind ] || umount "$0/proc"; '
            'chown -R --reference="$0" "$0/src"; }; trap undo EXIT; trap "exit 143" TERM INT; '
            'mount --$MTHP_BIND /proc "$0/proc" && mount --bind /dev "$0/dev" || exit; '
            'chroot "$0" /usr/bin/env -i PATH=/usr/bin:/bin "$@"'
        )
        make = ["make", "-C", f"/{place}", f"KERNELRELEASE={kernel.release}", "HOSTCC=gcc"]
        make += [f"KDIR=/usr/src/linux-headers-{kernel.release}", *(["BTF=given.btf"] if btf else [])]
        log = BUILD / "log" / f"module{'-' if variant else ''}{variant}-{kernel.release}.log"
        proc.run(
            [*_apart(), "bash", "-c", script, str(kernel.root), *make],
            log=log,
            what=f"building the module for {kernel.release}",
            code=Exit.BUILD,
        )
        text = log.read_text(errors="replace")
        if complaints := re.findall(r"^.*\bwarning\b.*$", text, re.MULTILINE | re.IGNORECASE):
            raise LabError(Exit.BUILD, f"the module does not build cleanly for {kernel.release}:\n{complaints[0]}")
        # Apart from where it was built: the next one may be built there while a guest is about to take this one.
        kept = BUILD / "module" / kernel.release / (variant or "usual") / "mthp_hook.ko"
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(directory / kept.name, kept.with_suffix(".new"))
        kept.with_suffix(".new").replace(kept)
        return kept


def _apart() -> list[str]:
    """A program with mounts of its own and the rights to make some; it finds in MTHP_BIND how /proc is to be bound."""
    # A chroot that is no mount point has no line for it. Mounts cannot be made private there: where they are shared,
    # each is seen outside until it is taken back, and none below /proc may be. And only root gets rights there.
    whole = any(line.split()[4] == "/" for line in Path("/proc/self/mountinfo").read_text().splitlines())
    root = os.geteuid() == 0
    if whole:
        return ["unshare", "--mount", *([] if root else ["--map-root-user"]), "env", "MTHP_BIND=rbind"]
    return [
        *([] if root else ["sudo", "-n"]),
        "unshare",
        "--mount",
        "--propagation",
        "unchanged",
        "env",
        "MTHP_BIND=bind",
    ]


def with_dependencies(kernel: Stock, name: str, out: Path) -> list[Path]:
    """A module of the kernel's, after those it needs, unpacked into `out`."""
    found = list(kernel.modules.rglob(f"{name}.ko.xz"))
    if len(found) != 1:
        raise LabError(Exit.SOURCE, f"{kernel.release} has no module {name}")
    content = lzma.decompress(found[0].read_bytes())
    depends = re.search(rb"\0depends=([^\0]*)\0", content)
    before: list[Path] = []
    for one in (depends[1].decode() if depends else "").replace("-", "_").split(","):
        if one:
            before += [path for path in with_dependencies(kernel, one, out) if path not in before]
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.ko"
    if not path.exists():
        # Several guests begin at once.
        with tempfile.NamedTemporaryFile(dir=out, delete=False) as file:
            file.write(content)
        Path(file.name).replace(path)
    return [*before, path]
