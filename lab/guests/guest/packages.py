"""Debian's packages, downloaded and unpacked without installing them.

apt does the resolving, the verifying and the downloading, with lists and caches of its own for
each release and architecture. So the machine's own sources, lists and packages stay as they are,
and a guest may come from another release or architecture than the machine.
"""

from __future__ import annotations

import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from guest import STORE, Unavailable

KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
MIRRORS = {
    "main": "http://deb.debian.org/debian",
    "security": "http://deb.debian.org/debian-security",
}
#: For a mirror that answers slowly; nothing here may hold up a test run for long.
DOWNLOAD_SECONDS = 300


class Archive:
    """The packages of some suites for one architecture."""

    def __init__(self, architecture: str, suites: tuple[str, ...]) -> None:
        self.architecture = architecture
        self.suites = suites
        self.folder = STORE / "apt" / f"{'+'.join(suites)}-{architecture}"
        self._listed = False

    def _apt(self, *command: str, into: Path | None = None) -> str:
        """Runs apt on this archive alone; returns what it printed."""
        settings = {
            "Dir::Etc::sourcelist": self.folder / "sources.list",
            "Dir::Etc::sourceparts": self.folder / "none",
            "Dir::State::lists": self.folder / "lists",
            "Dir::State::status": self.folder / "status",
            "Dir::Cache": self.folder / "cache",
            "APT::Architecture": self.architecture,
            "APT::Architectures": self.architecture,
            "APT::Sandbox::User": "root",  # these folders are not _apt's
            "Acquire::Languages": "none",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
            "Acquire::Retries": "3",
            "Acquire::http::Timeout": "30",
        }
        options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
        try:
            done = subprocess.run(
                [command[0], *options, *command[1:]],
                cwd=into or self.folder,
                capture_output=True,
                text=True,
                timeout=DOWNLOAD_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"guests come as Debian's packages, and {error}") from error
        if done.returncode != 0:
            reasons = [line for line in done.stderr.splitlines() if line.startswith("E:")]
            raise Unavailable(f"{' '.join(command)} ({self.folder.name}): {'; '.join(reasons)}")
        return done.stdout

    def update(self) -> None:
        """Fetches the lists, once a process."""
        if self._listed:
            return
        if not KEYS.exists():
            raise Unavailable(f"{KEYS} is missing: apt-get install debian-archive-keyring")
        for needed in ("lists/partial", "cache/archives/partial", "none"):
            (self.folder / needed).mkdir(parents=True, exist_ok=True)
        (self.folder / "status").touch()
        lines = [
            f"deb [signed-by={KEYS}] "
            f"{MIRRORS['security' if suite.endswith('-security') else 'main']} {suite} main\n"
            for suite in self.suites
        ]
        (self.folder / "sources.list").write_text("".join(lines))
        self._apt("apt-get", "update", "-qq")
        self._listed = True

    def depends(self, package: str) -> list[str]:
        """The names of what a package's newest version depends on."""
        self.update()
        text = self._apt("apt-cache", "show", "--no-all-versions", package)
        found = re.search(r"^Depends: (.*)$", text, re.MULTILINE)
        return re.findall(r"(?:^|[,|]) *([a-z0-9][a-z0-9.+-]+)", found[1]) if found else []

    def download(self, *packages: str) -> list[Path]:
        """The packages' files, kept from run to run as long as they are the newest."""
        self.update()
        wanted = self.folder / "packages"
        wanted.mkdir(exist_ok=True)
        lines = self._apt("apt-get", "download", "--print-uris", "-qq", *packages).splitlines()
        names = [line.split()[1] for line in lines]
        if any(not (wanted / name).exists() for name in names):
            self._apt("apt-get", "download", "-qq", *packages, into=wanted)
        return [wanted / name for name in names]


def members(package: Path) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """What a package would install, in one pass; a file's content can be read until the next."""
    command = ["dpkg-deb", "--fsys-tarfile", str(package)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as unpacking:
        with tarfile.open(fileobj=unpacking.stdout, mode="r|") as archive:
            for member in archive:
                yield member, archive.extractfile(member) if member.isfile() else None
        code = unpacking.wait()
    if code != 0:
        raise Unavailable(f"{package} can't be unpacked: {' '.join(command)} ended with {code}")
