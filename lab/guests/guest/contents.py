"""What a guest finds in its file system: the recorder, the lab's programs, and what they need."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from guest import ROOT, STORE, Unavailable
from guest.boot import Boot
from guest.initramfs import Initramfs
from guest.packages import Archive, members

INIT = Path(__file__).resolve().parents[1] / "init"
#: The release whose busybox guests have, whatever their kernel.
USERLAND = ("bookworm",)
ACCOUNTS = {
    "/etc/passwd": "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
    "/etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "/etc/hosts": "127.0.0.1 localhost\n",
}


def write(path: Path, boot: Boot, architecture: str, command: str | None) -> None:
    """Writes the file system of one run, whose command is a shell's script."""
    with path.open("wb") as file:
        archive = Initramfs(file)
        archive.character_device("/dev/console", 5, 1)
        archive.file("/init", INIT.read_bytes(), 0o755)
        archive.copy("/bin/busybox", busybox(architecture))
        for name, text in ACCOUNTS.items():
            archive.file(name, text.encode())
        for module in boot.modules:
            archive.copy(f"/modules/{module.name}", module)
        archive.file("/modules/order", "".join(f"{m.name}\n" for m in boot.modules).encode())
        for name, source in programs().items():
            archive.copy(name, source)
        if command is not None:
            archive.file("/command", command.encode())
        archive.close()


def busybox(architecture: str) -> Path:
    """Debian's static busybox: every command of the guest but ours."""
    (package,) = Archive(architecture, USERLAND).download("busybox-static")
    kept = STORE / "busybox" / package.stem
    if not kept.exists():
        for member, content in members(package):
            if member.name.endswith("/bin/busybox") and content is not None:
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_bytes(content.read())
                kept.chmod(0o755)
    return kept


def programs() -> dict[str, Path]:
    """What was built, and memcached, by their names in the guest, with their libraries."""
    built = ROOT / "target" / "release"
    found = {f"/bin/{name}": built / name for name in ("tailscope", "tailscope-lab")}
    for program in sorted((ROOT / "target" / "lab").glob("*")):
        found[f"/lab/{program.name}"] = program
    missing = [str(path) for path in found.values() if not path.exists()]
    if missing:
        raise Unavailable(f"not built yet: {', '.join(missing)}; run make build")
    if memcached := shutil.which("memcached"):
        found["/bin/memcached"] = Path(memcached)
    for program in list(found.values()):
        found |= libraries(program)
    return found


def libraries(program: Path) -> dict[str, Path]:
    """The libraries that a program of this machine loads, by the names under which it does."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=30)
    return {name: Path(name) for name in re.findall(r"(/\S+) \(0x", done.stdout)}
