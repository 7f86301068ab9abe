"""A fresh Debian 12 in a folder, and commands in it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

MIRROR = "http://deb.debian.org/debian"
#: The mounts are this command's own and end with it.
ENTER = """
mount -t proc proc "$0/proc"
mount --rbind /sys "$0/sys"
mount --rbind /dev "$0/dev"
exec chroot "$0" /bin/sh -ec "$1"
"""
#: What each run of dpkg, apt and man-db changes, and what is not on the disk.
NOISE = (
    "proc",
    "sys",
    "dev",
    "tmp",
    "run/systemd",
    "var/log",
    "var/cache",
    "var/lib/apt",
    "var/lib/dpkg",
)


class Debian:
    """A tree with Debian 12 in it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def bootstrapped(cls, root: Path) -> Debian:
        """The smallest one that has apt, as the mirror has it today."""
        command = ["debootstrap", "--variant=minbase", "bookworm", root, MIRROR]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr
        # A package's scripts start no services here.
        (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
        (root / "usr/sbin/policy-rc.d").chmod(0o755)
        return cls(root)

    def copied(self, root: Path) -> Debian:
        """Another one that is the same."""
        subprocess.run(["cp", "-a", self.root, root], check=True, timeout=300)
        return Debian(root)

    def put(self, file: Path) -> str:
        """Copies a file in; returns its name there."""
        shutil.copy(file, self.root / "tmp")
        return f"/tmp/{file.name}"

    def run(self, script: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """Runs a shell's script as root in it."""
        command = ["unshare", "--mount", "sh", "-ec", ENTER, str(self.root), script]
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        environment = {
            "PATH": path,
            "HOME": "/root",
            "LC_ALL": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
        }
        return subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=seconds
        )

    def clean(self, script: str, seconds: float = 120) -> str:
        """What a script prints that ends with 0."""
        done = self.run(script, seconds)
        assert done.returncode == 0, f"{script}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def install(self, *packages: str) -> None:
        """Installs packages, by name or by file, with what they depend on."""
        options = "-y -qq --no-install-recommends -o APT::Sandbox::User=root"
        self.clean(f"apt-get install {options} {' '.join(packages)}", 900)

    def files(self) -> dict[str, str]:
        """Everything in the tree that may stay behind: path → where a link leads, else ""."""
        found = {}
        for folder, folders, files in os.walk(self.root):
            here = Path(folder).relative_to(self.root)
            folders[:] = [name for name in folders if str(here / name) not in NOISE]
            for name in (*folders, *files):
                path = self.root / here / name
                found[str(here / name)] = os.readlink(path) if path.is_symlink() else ""
        return found
