"""Guest machines under QEMU's own emulation: their kernels, their files, and one run of one."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
#: Everything that was downloaded, unpacked or built for guests; `make clean` takes it away.
STORE = ROOT / "target" / "guests"


class Unavailable(Exception):
    """This machine can't have that guest; the text says what was tried and what would help."""
