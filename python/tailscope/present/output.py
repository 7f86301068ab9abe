"""Files of results, most often written by root, perhaps to a folder that others may write to.

The rules are those of `crates/output`: a file is always a new one, a link is replaced and never
followed, and root's results are for root alone.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from tailscope.errors import TailscopeError


def write(file: str, content: str | bytes) -> None:
    """Write a whole file in place of what is there: a reader sees the old one or the new one."""
    place = Path(file)
    try:
        data = content.encode() if isinstance(content, str) else content
        if place.exists() and not (place.is_file() or place.is_dir()):
            # A device or a pipe, such as /dev/stdout, is not replaced.
            place.write_bytes(data)
            return
        partial = place.with_name(f".{place.name}.{os.getpid()}.tmp")
        with os.fdopen(new(partial), "wb") as stream:
            stream.write(data)
        os.replace(partial, place)
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        with suppress(OSError, NameError, ValueError):
            partial.unlink()
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise TailscopeError(f"{file} can't be written: {why}") from error


def new(path: Path) -> int:
    """The descriptor of a new, empty file."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    mode = stat.S_IRUSR | stat.S_IWUSR
    if os.geteuid() != 0:
        mode |= stat.S_IRGRP | stat.S_IROTH
    try:
        return os.open(path, flags, mode)
    except FileExistsError:
        # A killed process left it, or somebody put it there. What it may lead to stays.
        path.unlink()
        return os.open(path, flags, mode)
