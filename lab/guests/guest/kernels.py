"""The kernels that guests run, all of them Debian's own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kernel:
    """A line of kernels that Debian keeps; the mirror says which release of it is current."""

    name: str
    #: Debian's name of the architecture.
    architecture: str
    #: The release of Debian, as its mirror calls it, with its security updates where there are any.
    suites: tuple[str, ...]
    #: In words: why this one is among the guests.
    why: str

    @property
    def version(self) -> str:
        """The beginning that the version of every kernel of this line has."""
        return self.name.removeprefix("arm64-")


KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel(
            "6.1",
            "amd64",
            ("bookworm", "bookworm-security"),
            "Debian 12: fentry and kprobes; too old for the tracepoints of sockets",
        ),
        Kernel("6.12", "amd64", ("bookworm-backports",), "Debian 12's backports, and Debian 13"),
        Kernel(
            "7.2",
            "amd64",
            ("sid",),
            "the newest: Debian's unstable release moves, take what it has",
        ),
        Kernel(
            "arm64-6.1",
            "arm64",
            ("bookworm", "bookworm-security"),
            "another architecture; kprobes, as it has no trampolines for fentry yet",
        ),
        Kernel("arm64-6.12", "arm64", ("bookworm-backports",), "fentry on that architecture"),
    )
}
