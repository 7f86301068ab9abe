"""systemd as the guest's first process: this machine's own, with the few units that it needs."""

from __future__ import annotations

import shutil
from pathlib import Path

from guest import Unavailable

#: The first process, and its client.
MANAGER = Path("/lib/systemd/systemd")
CLIENT = "systemctl"
UNITS = Path("/lib/systemd/system")
#: What `multi-user.target` needs; the folders beside them, which have everything else, stay here.
WANTED = (
    "basic.target",
    "local-fs.target",
    "multi-user.target",
    "network.target",
    "paths.target",
    "shutdown.target",
    "slices.target",
    "sockets.target",
    "swap.target",
    "sysinit.target",
    "timers.target",
    "umount.target",
)
#: Runs the guest's command on its console, as `init` does where there is no systemd.
COMMAND = """[Unit]
Description=The command of this guest
After=multi-user.target

[Service]
Type=idle
ExecStart=/bin/sh /run-command
StandardInput=null
StandardOutput=null
KillMode=process
"""
TARGET = """[Unit]
Requires=multi-user.target
Wants=guest-command.service
After=multi-user.target
AllowIsolate=yes
"""


def programs() -> dict[str, Path]:
    """What is copied from this machine, by the names in the guest; without their libraries."""
    client = shutil.which(CLIENT)
    if not MANAGER.exists() or not client:
        raise Unavailable("systemd is missing: apt-get install systemd")
    return {str(MANAGER): MANAGER, f"/usr/bin/{CLIENT}": Path(client)}


def units() -> dict[str, bytes]:
    """The units, by their names in the guest."""
    missing = [name for name in WANTED if not (UNITS / name).exists()]
    if missing:
        raise Unavailable(f"systemd's units are missing: {', '.join(missing)}")
    found = {str(UNITS / name): (UNITS / name).read_bytes() for name in WANTED}
    found["/etc/systemd/system/guest-command.service"] = COMMAND.encode()
    found["/etc/systemd/system/default.target"] = TARGET.encode()
    found["/etc/machine-id"] = b"0" * 31 + b"1\n"
    return found
