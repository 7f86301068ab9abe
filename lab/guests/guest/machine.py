"""A guest that runs: QEMU's process, the kernel's log, and the command's exit code."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from guest import Unavailable, contents
from guest.boot import Boot
from guest.kernels import Kernel

#: What the guest's init writes as it ends, in the folder that it shares with the host.
EXIT_CODE = ".exit-code"
LOG_LINES = 30


@dataclass(frozen=True)
class Hardware:
    """How QEMU makes a machine of one architecture."""

    emulator: str
    #: Debian's package that has the emulator.
    package: str
    options: tuple[str, ...]
    serial_console: str


X86_64 = Hardware(
    "qemu-system-x86_64",
    "qemu-system-x86",
    (
        # One thread for all CPUs: with one for each, CPUs now and then run into the middle of an
        # instruction that the kernel is patching (ftrace does for fentry), and the kernel panics.
        *("-M", "q35", "-accel", "tcg,thread=single", "-m", "1024"),
        # QEMU's own vendor is AMD's, whose processors of this model have no siblings.
        *("-cpu", "max,vendor=GenuineIntel", "-smp", "4,sockets=1,cores=2,threads=2"),
    ),
    "ttyS0",
)
# With `icount` time is counted in instructions, which makes the counters of the PMU exact.
ARM64 = Hardware(
    "qemu-system-aarch64",
    "qemu-system-arm",
    ("-M", "virt", "-cpu", "max", "-icount", "shift=0,sleep=off", "-m", "1024"),
    "ttyAMA0",
)
HARDWARE = {"amd64": X86_64, "arm64": ARM64}


class Machine:
    """A guest from its boot to its end; a context manager that ends it.

    It runs `command`, a shell's script, with the guest's console as its standard streams, which
    are those of QEMU's process here. Without a command it runs a shell for a person. With systemd,
    that is its first process.
    """

    def __init__(
        self,
        kernel: Kernel,
        boot: Boot,
        command: str | None,
        share: Path,
        *,
        with_systemd: bool = False,
        **streams: int | None,
    ) -> None:
        hardware = HARDWARE[kernel.architecture]
        if not shutil.which(hardware.emulator):
            raise Unavailable(f"{hardware.emulator} is missing: apt-get install {hardware.package}")
        self.kernel = kernel
        share.mkdir(parents=True, exist_ok=True)
        self._code = share.resolve() / EXIT_CODE
        self._code.unlink(missing_ok=True)
        self._files = tempfile.TemporaryDirectory(prefix="guest-")
        folder = Path(self._files.name)
        self._log = folder / "kernel.log"
        initramfs = folder / "initramfs"
        contents.write(initramfs, boot, kernel.architecture, command, with_systemd=with_systemd)
        options = [
            *hardware.options,
            *("-kernel", str(boot.image), "-initrd", str(initramfs)),
            # An emulated processor gains nothing from mitigations, and pays for them.
            *("-append", f"console={hardware.serial_console} panic=-1 mitigations=off"),
            *("-serial", f"file:{self._log}"),
            *("-chardev", f"stdio,id=terminal,signal={'on' if command else 'off'}"),
            *("-device", "virtio-serial-pci", "-device", "virtconsole,chardev=terminal"),
            *("-fsdev", f"local,id=share,path={share.resolve()},security_model=none"),
            *("-device", "virtio-9p-pci,fsdev=share,mount_tag=share"),
        ]
        self.process = subprocess.Popen(
            # QEMU must not outlive us, however we end.
            ["setpriv", "--pdeathsig", "KILL", hardware.emulator, *EMULATION, *options],
            bufsize=0,
            **streams,
        )

    def exit_code(self) -> int | None:
        """The command's exit code; none if the machine ended without it, or still runs."""
        try:
            return int(self._code.read_text())
        except (OSError, ValueError):
            return None

    def end_of_log(self) -> str:
        """The last lines that the kernel said."""
        text = self._log.read_text(errors="replace") if self._log.exists() else ""
        return "\n".join(f"  {line}" for line in text.splitlines()[-LOG_LINES:])

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._code.unlink(missing_ok=True)
        self._files.cleanup()


#: No device that is not named, no window, and no second boot: a panic ends the machine.
EMULATION = ("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot")
