"""The packages of `tailscope` use each other in one direction, and no file is in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib.util import find_spec
from pathlib import Path

import tailscope

ROOT = Path(tailscope.__file__).parent
#: Each package uses only those after it.
ORDER = ("present", "statistics", "engines", "ledger")
#: What all packages use; these use no package.
BASICS = {"tailscope", "tailscope.errors", "tailscope.escaping", "tailscope.quantity"}


def modules() -> dict[str, Path]:
    """All modules by name."""
    found = {}
    for file in ROOT.rglob("*.py"):
        parts = file.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = file
    return found


def imports(file: Path, known: dict[str, Path]) -> Iterator[str]:
    """The modules of `tailscope` that a file imports anywhere, be it for types only."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else node.module


def used() -> dict[str, set[str]]:
    """Each module with those that it imports; a package's own `__init__` apart."""
    known = modules()
    return {name: set(imports(file, known)) - {"tailscope"} for name, file in known.items()}


def package(module: str) -> str | None:
    """The package that a module is in; None for those at the top."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ORDER else None


def allowed(name: str, other: str) -> bool:
    """Whether a module may import another."""
    mine, theirs = package(name), package(other)
    if other in BASICS:
        return True
    if name in BASICS:
        return name == "tailscope"
    if mine is None:
        return True
    return theirs is not None and ORDER.index(mine) <= ORDER.index(theirs)


def test_each_package_uses_only_those_below_it() -> None:
    pairs = [(name, other) for name, others in used().items() for other in others]
    assert len(pairs) > 100
    assert not [pair for pair in pairs if not allowed(*pair)]


def test_no_modules_import_each_other_in_a_circle() -> None:
    TopologicalSorter(used()).prepare()


def test_documented_names_are_there() -> None:
    assert {"pairs", "classes", "curves"} <= set(dir(tailscope.frames))
    assert find_spec("tailscope.frames") and find_spec("tailscope.weighing")
    from tailscope.statistics.ranking import Cause
    from tailscope.weighing import Cause as documented

    assert documented is Cause
