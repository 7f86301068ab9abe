"""Where ledgers lie: in folders of this machine, or in buckets, `s3://BUCKET/PATH`.

Buckets are read with s3fs, an extra of the wheel (`pip install 'tailscope[s3]'`), which takes
address, region and keys from where Amazon's own tools take them: `AWS_ENDPOINT_URL`, `AWS_REGION`,
`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `~/.aws`, or the role of the machine.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tailscope.errors import LedgerError, MachineError

if TYPE_CHECKING:
    from s3fs import S3FileSystem

SCHEMES = ("s3://", "s3a://")
#: How long a bucket's server may take to accept a connection, in s.
PATIENCE_S = 5
#: A ledger.json has some kB. What it is read into takes up to 30 times as much.
LARGEST_SMALL = 4 << 20


def is_bucket(name: str) -> bool:
    """Whether a name is one of a bucket."""
    return name.startswith(SCHEMES)


def normal(name: str | os.PathLike[str]) -> str:
    """A ledger's name without what makes no difference; its ledger.json stands for the folder."""
    name = os.fspath(name)
    if is_bucket(name):
        name = "s3://" + name.partition("://")[2].strip("/")
        return name.removesuffix("/ledger.json")
    path = Path(name)
    return str(path.parent if path.name == "ledger.json" and path.is_file() else path)


def ledger_files(name: str) -> tuple[str, ...] | None:
    """The Parquet files and ledger.json's below a folder, or the one file that is named.

    None if nothing is there.
    """
    if is_bucket(name):
        with reading(name):
            store = buckets()
            store.invalidate_cache()
            found = sorted(f"s3://{key}" for key in store.find(name))
        if found == [name]:
            return (name,)
        wanted = (".parquet", "/ledger.json")
        return tuple(file for file in found if file.endswith(wanted)) if found else None
    path = Path(name)
    if not path.exists():
        return None
    if path.is_file():
        return (name,)
    with reading(name):
        found = [*path.rglob("*.parquet"), *path.rglob("ledger.json")]
        return tuple(sorted(str(file) for file in found if file.is_file()))


def is_being_written(folder: str) -> bool | None:
    """Whether a recorder on this machine writes to a ledger's folder; None where that is unknown.

    A recorder holds a shared lock on the folder, which ends with it.
    """
    if is_bucket(folder):
        return None
    try:
        opened = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(opened)
    return False


def read_bytes(name: str) -> bytes:
    """A small file; raises what `open` raises, and OSError where it is not small."""
    with open_file(name) as file:
        found = file.read(LARGEST_SMALL + 1)
    if len(found) > LARGEST_SMALL:
        raise OSError(errno.EFBIG, f"it is larger than {LARGEST_SMALL >> 20} MiB")
    return found


def read_text(name: str) -> str:
    """A small file as text; raises what `open` raises, and UnicodeDecodeError."""
    return read_bytes(name).decode()


def open_file(name: str) -> BinaryIO:
    """A file to read, a block at a time; raises OSError, in a bucket too."""
    if is_bucket(name):
        with reading(name, but=OSError):
            return buckets().open(name, "rb")
    # Who owns the folder may have put anything there: a pipe would be waited for.
    opened = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return os.fdopen(opened, "rb")


def fetch(files: Sequence[str], folder: str) -> list[str]:
    """Copy files from buckets, and say where the copies are; local files stay where they are.

    An engine asks dozens of questions; each would fetch them again.
    """
    copies = [
        os.path.join(folder, f"{number}.parquet") if is_bucket(file) else file
        for number, file in enumerate(files)
    ]
    wanted = [pair for pair in zip(files, copies, strict=True) if is_bucket(pair[0])]
    if wanted:
        with reading(wanted[0][0]):
            buckets().get(*map(list, zip(*wanted, strict=True)))
    return copies


def buckets() -> S3FileSystem:
    """All buckets as one file system, which remembers what it listed last."""
    try:
        import s3fs
    except ImportError as error:
        raise MachineError(
            f"a ledger in a bucket needs {error.name}: pip install 'tailscope[s3]'"
        ) from error
    return s3fs.S3FileSystem(
        config_kwargs={"connect_timeout": PATIENCE_S, "retries": {"max_attempts": 1}}
    )


@contextmanager
def reading(name: str, but: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """What goes wrong while `name` is read becomes one sentence; `but` passes."""
    try:
        yield
    except (LedgerError, MachineError):
        raise
    except but:
        raise
    except PermissionError as error:
        whose = "with these AWS keys" if is_bucket(name) else "as this user"
        raise LedgerError(f"can't read {name} {whose}: {error.strerror or error}") from error
    except FileNotFoundError as error:
        raise LedgerError(f"there is no ledger at {name}: {error.strerror or error}") from error
    except OSError as error:
        raise LedgerError(f"can't read {name}: {error.strerror or error}") from error
    except Exception as error:
        if not is_bucket(name):
            raise
        # The client below s3fs has a class for each of its many errors, and each says it in words.
        raise MachineError(f"can't reach {name}: {error}") from error
