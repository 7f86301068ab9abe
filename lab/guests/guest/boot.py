"""What a guest boots: a kernel's image, and the few modules that reach the host."""

from __future__ import annotations

import json
import lzma
import re
from dataclasses import dataclass
from pathlib import Path

from guest import STORE, Unavailable, cross
from guest.kernels import Kernel
from guest.packages import Archive, members

#: Where the modules live that are wanted or that those need, below kernel/ of the package.
FOLDERS = ("drivers/virtio/", "drivers/char/", "fs/9p/", "fs/netfs/", "fs/fscache/", "net/9p/")
#: The console of the guest's command, and the folder that host and guest share.
WANTED = ("virtio_pci", "virtio_console", "9pnet_virtio", "9p")


@dataclass(frozen=True)
class Boot:
    """A kernel, unpacked."""

    release: str
    image: Path
    #: In the order in which they must be loaded.
    modules: tuple[Path, ...]


def prepare(kernel: Kernel) -> Boot:
    """Has the programs of another architecture, and the newest kernel of the line, unpacked."""
    if kernel.architecture != "amd64":
        cross.build(kernel.architecture)
    archive = Archive(kernel.architecture, kernel.suites)
    package = current(archive, kernel)
    release = package.removeprefix("linux-image-")
    folder = STORE / "kernels" / release
    order = folder / "order.json"
    if not order.exists():
        unpack(archive.download(*parts(archive, package)), folder)
        modules = [path.name for path in in_order(folder)]
        order.write_text(json.dumps(modules))
    return Boot(
        release,
        folder / "vmlinuz",
        tuple(folder / name for name in json.loads(order.read_text())),
    )


def current(archive: Archive, kernel: Kernel) -> str:
    """The package of the kernel that Debian's own meta-package stands for today."""
    meta = f"linux-image-{kernel.architecture}"
    names = [name for name in archive.depends(meta) if re.match(r"linux-image-\d", name)]
    if not names:
        raise Unavailable(f"{meta} of {' '.join(kernel.suites)} names no kernel")
    if not names[0].startswith(f"linux-image-{kernel.version}."):
        raise Unavailable(
            f"{' '.join(kernel.suites)} has moved on from {kernel.version} to {names[0]}: "
            "lab/guests/guest/kernels.py should name that"
        )
    return names[0]


def parts(archive: Archive, package: str) -> list[str]:
    """The package, and those with its image and modules where Debian has split them off."""
    release = package.removeprefix("linux-image-")
    split = {f"linux-binary-{release}", f"linux-modules-{release}", f"linux-base-{release}"}
    return [package, *(name for name in archive.depends(package) if name in split)]


def unpack(packages: list[Path], folder: Path) -> None:
    """Takes the image and the modules that may be wanted; the hundreds of MB of others stay."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in packages:
        for member, content in members(package):
            if content is None:
                continue
            module = re.search(r"/kernel/(.*/)([^/]+\.ko)(\.xz)?$", member.name)
            if re.search(r"/vmlinuz(-[^/]*)?$", member.name):
                (folder / "vmlinuz").write_bytes(content.read())
            elif module and module[1].startswith(FOLDERS):
                data = content.read()
                (folder / module[2]).write_bytes(lzma.decompress(data) if module[3] else data)
    if not (folder / "vmlinuz").exists():
        raise Unavailable(f"no kernel in {', '.join(path.name for path in packages)}")


def in_order(folder: Path) -> list[Path]:
    """The wanted modules, each after those that it needs; what is built in has no file."""
    there = {path.stem.replace("-", "_"): path for path in folder.glob("*.ko")}
    order: list[Path] = []

    def add(name: str) -> None:
        path = there.get(name)
        if path is None or path in order:
            return
        for needed in needs(path):
            add(needed)
        order.append(path)

    for name in WANTED:
        add(name)
    return order


def needs(module: Path) -> list[str]:
    """The modules that a module names in its own .modinfo."""
    found = re.search(rb"\0depends=([^\0]*)\0", module.read_bytes())
    return (
        [name.replace("-", "_") for name in found[1].decode().split(",") if name] if found else []
    )
