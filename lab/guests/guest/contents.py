"""What a guest finds in its file system: the recorder, the lab's programs, and what they need."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from guest import ROOT, STORE, Unavailable, cross, systemd
from guest.boot import Boot
from guest.initramfs import Initramfs
from guest.packages import Archive, members

SCRIPTS = Path(__file__).resolve().parents[1]
#: The release whose busybox guests have, whatever their kernel.
USERLAND = ("bookworm",)
#: This machine's own programs that its architecture's guests have too, where they are installed.
TOOLS = ("memcached", "bpftool")
ACCOUNTS = {
    "/etc/passwd": "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
    "/etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "/etc/hosts": "127.0.0.1 localhost\n",
}


def write(
    path: Path, boot: Boot, architecture: str, command: str | None, *, with_systemd: bool = False
) -> None:
    """Writes the file system of one run, whose command is a shell's script."""
    with path.open("wb") as file:
        archive = Initramfs(file)
        archive.character_device("/dev/console", 5, 1)
        archive.file("/init", (SCRIPTS / "init").read_bytes(), 0o755)
        archive.file("/run-command", (SCRIPTS / "run-command").read_bytes(), 0o755)
        archive.copy("/bin/busybox", busybox(architecture))
        for name, text in ACCOUNTS.items():
            archive.file(name, text.encode())
        for module in boot.modules:
            archive.copy(f"/modules/{module.name}", module)
        archive.file("/modules/order", "".join(f"{m.name}\n" for m in boot.modules).encode())
        for name, source in programs(architecture).items():
            archive.copy(name, source)
        if command is not None:
            archive.file("/command", command.encode())
        if with_systemd:
            write_systemd(archive)
        archive.close()


def write_systemd(archive: Initramfs) -> None:
    """Adds systemd, which `init` then has take its place."""
    found = systemd.programs()
    for program in list(found.values()):
        found |= libraries(program)
    known = programs("amd64")
    for name, source in found.items():
        if name not in known:
            archive.copy(name, source)
    for name, text in systemd.units().items():
        archive.file(name, text)


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


def programs(architecture: str) -> dict[str, Path]:
    """What was built, with its libraries, by the names in the guest; and what else is here."""
    if architecture == "amd64":
        release, lab = ROOT / "target" / "release", ROOT / "target" / "lab"
    else:
        release, lab = cross.release(architecture), cross.lab(architecture)
    found = {f"/bin/{name}": release / name for name in ("tailscope", "tailscope-lab")}
    found["/lab/instructions"] = release / "examples" / "instructions"
    for program in sorted(filter(Path.is_file, lab.glob("*"))):
        found[f"/lab/{program.name}"] = program
    missing = [str(path) for path in found.values() if not path.exists()]
    if missing:
        raise Unavailable(f"not built yet: {', '.join(missing)}; run make build")
    if architecture == "amd64":
        for name in TOOLS:
            if tool := shutil.which(name):
                found[f"/bin/{name}"] = Path(tool)
        for program in list(found.values()):
            found |= libraries(program)
    return found


def libraries(program: Path) -> dict[str, Path]:
    """The libraries that a program of this machine loads, by the names under which it does."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=30)
    return {name: Path(name) for name in re.findall(r"(/\S+) \(0x", done.stdout)}
