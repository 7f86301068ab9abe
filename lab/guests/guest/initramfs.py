"""The guest's root file system: an archive that the kernel unpacks into memory.

The format is cpio's "newc", described in the kernel's Documentation/driver-api/early-userspace/
buffer-format.rst. Writing it here lets an ordinary user make device nodes and files of root.
"""

from __future__ import annotations

import stat
from pathlib import Path, PurePosixPath
from typing import IO

ALIGNMENT = 4


class Initramfs:
    """An archive that is being written; `close` ends it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._entries = 0
        self._folders: set[PurePosixPath] = {PurePosixPath("/")}

    def folder(self, name: str, mode: int = 0o755) -> None:
        """A folder, with those above it."""
        path = PurePosixPath(name)
        if path in self._folders:
            return
        self.folder(str(path.parent))
        self._folders.add(path)
        self._entry(path, stat.S_IFDIR | mode)

    def file(self, name: str, content: bytes, mode: int = 0o644) -> None:
        self.folder(str(PurePosixPath(name).parent))
        self._entry(PurePosixPath(name), stat.S_IFREG | mode, content)

    def copy(self, name: str, source: Path) -> None:
        """A file of the host, followed if it is a link, with its right to be executed."""
        self.file(name, source.read_bytes(), 0o755 if source.stat().st_mode & 0o100 else 0o644)

    def link(self, name: str, target: str) -> None:
        self.folder(str(PurePosixPath(name).parent))
        self._entry(PurePosixPath(name), stat.S_IFLNK | 0o777, target.encode())

    def character_device(self, name: str, major: int, minor: int) -> None:
        self.folder(str(PurePosixPath(name).parent))
        self._entry(PurePosixPath(name), stat.S_IFCHR | 0o600, device=(major, minor))

    def close(self) -> None:
        self._entry(PurePosixPath("/TRAILER!!!"), 0)

    def _entry(
        self, path: PurePosixPath, mode: int, content: bytes = b"", device: tuple[int, int] = (0, 0)
    ) -> None:
        name = str(path).lstrip("/").encode() + b"\0"
        self._entries += 1
        links = 1
        numbers = [self._entries, mode, 0, 0, links, 0, len(content), 0, 0, *device, len(name), 0]
        header = b"070701" + b"".join(b"%08X" % number for number in numbers)
        self._file.write(_padded(header + name) + _padded(content))


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)
