"""Programs for guests of another architecture: compiled here, linked statically.

The C compiler and its libc are Debian's cross packages; Rust's standard library for the target
comes through rustup; what is linked beside libbpf comes as packages of that architecture, unpacked
into a folder of their own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from guest import ROOT, STORE, Unavailable
from guest.packages import Archive, members

#: Cold, on two busy CPUs, the recorder takes a few minutes.
BUILD_SECONDS = 1800


@dataclass(frozen=True)
class Target:
    """An architecture as the compilers name it."""

    gcc: str
    rust: str
    #: Debian's name for its folders of headers and libraries.
    multiarch: str
    #: Debian's packages with the cross compiler and its libc.
    packages: str


TARGETS = {
    "arm64": Target(
        "aarch64-linux-gnu-gcc",
        "aarch64-unknown-linux-gnu",
        "aarch64-linux-gnu",
        "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    )
}


#: What guests have in Rust: cargo's package, and how cargo names the program in it.
PROGRAMS = (
    ("tailscope", ("--bin", "tailscope")),
    ("tailscope-lab", ("--bin", "tailscope-lab")),
    ("tailscope-sdk", ("--example", "instructions")),
)


def release(architecture: str) -> Path:
    """Where `build` leaves the Rust programs."""
    return ROOT / "target" / TARGETS[architecture].rust / "release"


def lab(architecture: str) -> Path:
    """Where `build` leaves the lab's C programs."""
    return STORE / "lab" / architecture


def build(architecture: str) -> None:
    """Compiles the recorder and the lab for another architecture."""
    target = TARGETS[architecture]
    if not shutil.which(target.gcc):
        raise Unavailable(f"{target.gcc} is missing: apt-get install {target.packages}")
    compile_c = ["make", "--no-print-directory", "--silent", "-C", "lab/c", f"CC={target.gcc}"]
    _run([*compile_c, f"OUT={lab(architecture)}", "CFLAGS=-O2 -g -static"], {})
    for package, program in PROGRAMS:
        compile_rust = ["cargo", "rustc", "--release", "--locked", "--quiet"]
        compile_rust += ["--target", target.rust, "--package", package, *program]
        _run(
            [*compile_rust, "--", "-C", "target-feature=+crt-static"],
            _environment(target, libraries(architecture)),
        )


def libraries(architecture: str) -> Path:
    """libelf and zlib of the architecture, with their headers; unpacked once."""
    root = STORE / "libraries" / architecture
    if not root.exists():
        for package in Archive(architecture, ("bookworm",)).download("libelf-dev", "zlib1g-dev"):
            for member, content in members(package):
                if content and (member.name.endswith(".a") or "/include/" in member.name):
                    path = root / member.name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content.read())
    return root


def _environment(target: Target, root: Path) -> dict[str, str]:
    """What cargo, cc, libbpf-sys and bindgen ask about a target."""
    archives = str(root / "usr" / "lib" / target.multiarch)
    underscored = target.rust.replace("-", "_")
    return {
        f"CC_{underscored}": target.gcc,
        f"CARGO_TARGET_{underscored.upper()}_LINKER": target.gcc,
        "LIBBPF_SYS_EXTRA_CFLAGS": f"-I{root}/usr/include",
        f"LIBBPF_SYS_LIBRARY_PATH_{target.rust}": archives,  # .cargo/config.toml has it too
        f"BINDGEN_EXTRA_CLANG_ARGS_{underscored}": f"-I/usr/{target.multiarch}/include",
    }


def _run(command: list[str], environment: dict[str, str]) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"programs of another architecture: {error}") from error
    if done.returncode != 0:
        why = "\n".join(done.stderr.splitlines()[-20:])
        if "can't find crate for `core`" in why or "target may not be installed" in why:
            why = (
                f"Rust has no library for {command[command.index('--target') + 1]}: "
                "rustup target add it"
            )
        raise Unavailable(f"{' '.join(command)}:\n{why}")
