"""One run of a guest: from its boot to the exit code of its command."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from guest import Unavailable, contents
from guest.boot import Boot
from guest.kernels import Kernel

#: What the guest's init writes as it ends, in the folder that it shares with the host.
EXIT_CODE = ".exit-code"
#: As of timeout(1).
TIMED_OUT = 124
#: The guest's own end, without the code of its command: it panicked, or was switched off.
DIED = 125


@dataclass(frozen=True)
class Hardware:
    """How QEMU makes a machine of one architecture."""

    emulator: str
    package: str
    options: tuple[str, ...]
    serial_console: str


# Four CPUs are two cores of two threads each: the recorder meets siblings, and a host of two
# CPUs can still carry it. `mitigations=off` spares the emulation what it could not gain from.
HARDWARE = {
    "amd64": Hardware(
        "qemu-system-x86_64",
        "qemu-system-x86",
        (
            "-M",
            "q35",
            "-cpu",
            "max,vendor=GenuineIntel",
            "-accel",
            "tcg,thread=multi",
            "-smp",
            "4,sockets=1,cores=2,threads=2",
            "-m",
            "1024",
        ),
        "ttyS0",
    ),
    # `icount` counts guest time in instructions, which makes the counters of the PMU exact.
    "arm64": Hardware(
        "qemu-system-aarch64",
        "qemu-system-arm",
        ("-M", "virt", "-cpu", "max", "-icount", "shift=0,sleep=off", "-smp", "1", "-m", "1024"),
        "ttyAMA0",
    ),
}


def run(kernel: Kernel, boot: Boot, command: str | None, share: Path, seconds: float) -> int:
    """Runs the command, or a shell for a person, in a new guest; its output goes to stdout.

    `share` is the guest's /share, the command's folder. Returns the command's exit code,
    `TIMED_OUT` or `DIED`; with the latter two the end of the kernel's log goes to stderr.
    """
    hardware = HARDWARE[kernel.architecture]
    if not shutil.which(hardware.emulator):
        raise Unavailable(f"{hardware.emulator} is missing: apt-get install {hardware.package}")
    share = share.resolve()
    share.mkdir(parents=True, exist_ok=True)
    (share / EXIT_CODE).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="guest-") as name:
        folder = Path(name)
        log = folder / "kernel.log"
        initramfs = folder / "initramfs"
        contents.write(initramfs, boot, kernel.architecture, command)
        process = subprocess.Popen(
            [*invocation(hardware, boot, initramfs, log, share, interactive=command is None)],
            stdin=None if command is None else subprocess.DEVNULL,
        )
        try:
            process.wait(seconds if command is not None else None)
        except subprocess.TimeoutExpired:
            print(f"guest {kernel.name}: ended after {seconds:g} s", file=sys.stderr)
            _show_end(log)
            return TIMED_OUT
        finally:
            process.kill()
            process.wait()
        try:
            code = int((share / EXIT_CODE).read_text())
        except (OSError, ValueError):
            print(f"guest {kernel.name} ended before its command did", file=sys.stderr)
            _show_end(log)
            return DIED
        finally:
            (share / EXIT_CODE).unlink(missing_ok=True)
        return code


def invocation(
    hardware: Hardware, boot: Boot, initramfs: Path, log: Path, share: Path, *, interactive: bool
) -> list[str]:
    """QEMU's command line; QEMU dies with us, however we end."""
    kernel_options = f"console={hardware.serial_console} panic=-1 mitigations=off"
    return [
        *("setpriv", "--pdeathsig", "KILL", hardware.emulator),
        *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
        *hardware.options,
        *("-kernel", str(boot.image), "-initrd", str(initramfs), "-append", kernel_options),
        *("-serial", f"file:{log}"),
        *("-chardev", f"stdio,id=terminal,signal={'off' if interactive else 'on'}"),
        *("-device", "virtio-serial-pci", "-device", "virtconsole,chardev=terminal"),
        *("-fsdev", f"local,id=share,path={share},security_model=none"),
        *("-device", "virtio-9p-pci,fsdev=share,mount_tag=share"),
    ]


def _show_end(log: Path, lines: int = 30) -> None:
    if log.exists():
        for line in log.read_text(errors="replace").splitlines()[-lines:]:
            print(f"  {line}", file=sys.stderr)
