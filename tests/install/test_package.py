"""The Debian package on a fresh Debian 12: it installs, works, upgrades, and leaves nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fresh_debian import Debian
from rig.installed import ROOT

sys.path.insert(0, str(ROOT / "bench"))

from explain_synthetic import World, generate

pytestmark = pytest.mark.more

UNITS = ("tailscope-agent.service", "tailscope-agent.socket", "tailscope-guard.service")
CONFIGURATION = "etc/tailscope/agent.toml"
LEDGER = "var/lib/tailscope/2026-11-21T120000Z-000001/ledger.json"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, built from what `make build` made."""
    command = [ROOT / "packaging" / "build-deb", tmp_path_factory.mktemp("deb")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Debian:
    """A Debian 12 with nothing but its smallest set of packages."""
    if os.geteuid() != 0:
        pytest.skip("making a Debian takes root")
    if not shutil.which("debootstrap"):
        pytest.skip("debootstrap is missing: scripts/setup --for-packages")
    return Debian.bootstrapped(tmp_path_factory.mktemp("debian") / "fresh")


@pytest.fixture(scope="module")
def debian(fresh: Debian, package: Path) -> Debian:
    """One that has the package. What the package needs comes with it."""
    found = fresh.copied(fresh.root.parent / "used")
    found.clean("apt-get update -qq", 300)
    found.install(found.put(package))
    return found


@pytest.fixture(scope="module")
def desktop(debian: Debian) -> Debian:
    """The same with man, systemd's commands, and shells that complete."""
    found = debian.copied(debian.root.parent / "desktop")
    found.install("bash-completion", "fish", "man-db", "systemd", "zsh")
    return found


def upgraded(package: Path, folder: Path) -> Path:
    """The same package with a higher version."""
    tree = folder / "tree"
    subprocess.run(["dpkg-deb", "-R", package, tree], check=True, timeout=120)
    control = tree / "DEBIAN" / "control"
    lines = control.read_text().splitlines()
    changed = [f"{line}+1" if line.startswith("Version: ") else line for line in lines]
    control.write_text("\n".join(changed) + "\n")
    higher = folder / "higher.deb"
    command = ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", tree, higher]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return higher


def test_doctor_and_the_configurations_work(debian: Debian) -> None:
    assert json.loads(debian.clean("tailscope doctor --json"))["ladder"]
    check = "tailscope guard --config /etc/tailscope-guard/guard.toml --check"
    debian.clean(f"runuser -u tailscope-guard -- {check}")
    debian.clean("tailscope agent --check /etc/tailscope/agent.toml")
    mode = debian.clean("stat -c %a:%U:%G /etc/tailscope /etc/tailscope/agent.toml").split()
    assert mode == ["750:root:root", "640:root:root"]


def test_the_python_part_explains_a_ledger_and_writes_nothing_of_its_own(
    debian: Debian,
) -> None:
    generate(debian.root / "tmp" / "ledger", World(20_000, seconds=40.0, seed=3))
    before = debian.files()
    assert "--segment" in debian.clean("tailscope explain --help")
    assert "--fail-over" in debian.clean("tailscope diff --help")
    found = debian.clean("tailscope explain /tmp/ledger --html /tmp/report.html --json")
    assert json.loads(found)["causes"]
    # Another numpy on the path changes nothing.
    debian.clean("mkdir -p /tmp/other; echo 'raise SystemExit(7)' >/tmp/other/numpy.py")
    debian.clean("PYTHONPATH=/tmp/other tailscope explain /tmp/ledger -q")
    debian.clean("tailscope diff /tmp/ledger /tmp/ledger -q")
    assert debian.files() == before


def test_man_and_the_shells_find_their_files(desktop: Debian) -> None:
    page = desktop.clean("MANWIDTH=80 man tailscope-explain | cat")
    assert "tailscope explain LEDGER -p p99.9" in page
    assert desktop.clean("man -w tailscope tailscope-timeline-story").count(".gz") == 2
    assert "tailscope-diff" in desktop.clean("apropos tailscope")
    bash = """source /usr/share/bash-completion/bash_completion
_completion_loader tailscope
complete -p tailscope
COMP_WORDS=(tailscope explain --tar) COMP_CWORD=2
_tailscope tailscope --tar explain
echo "offered ${COMPREPLY[*]}"
"""
    (desktop.root / "tmp" / "complete").write_text(bash)
    assert desktop.clean("bash /tmp/complete").endswith("offered --target\n")
    offered = desktop.clean("""fish -c 'complete -C "tailscope explain --tar"'""")
    assert offered.startswith("--target\t")
    zsh = "autoload -U compinit; compinit -u -D; echo ${_comps[tailscope]}; autoload +X _tailscope"
    assert desktop.clean(f"zsh -fc '{zsh}'").split()[0] == "_tailscope"


def test_the_units_are_valid_and_not_enabled(desktop: Debian) -> None:
    for unit in UNITS:
        desktop.clean(f"systemd-analyze verify /lib/systemd/system/{unit}")
        assert desktop.run(f"systemctl is-enabled {unit}").stdout.strip() == "disabled"


def test_purging_leaves_nothing_behind(desktop: Debian, package: Path, tmp_path: Path) -> None:
    system = desktop.copied(desktop.root.parent / "purged")
    system.clean("apt-get purge -y -qq tailscope")
    before = system.files()
    assert [path for path in before if "tailscope" in path] == []

    system.install(system.put(package))
    use(system)
    kept = (system.root / CONFIGURATION).read_text()

    system.install(system.put(upgraded(package, tmp_path)))
    assert system.clean("dpkg-query -W -f '${Version}' tailscope").endswith("+1")
    assert (system.root / CONFIGURATION).read_text() == kept
    assert (system.root / LEDGER).exists()
    enabled = system.clean(f"systemctl is-enabled {' '.join(UNITS)}").split()
    assert enabled == ["enabled"] * len(UNITS)

    system.clean("apt-get remove -y -qq tailscope")
    assert (system.root / CONFIGURATION).read_text() == kept
    assert (system.root / LEDGER).exists()
    assert [path for path in system.files() if path.startswith("usr") and "tailscope" in path] == []
    assert [path for path in system.files() if ".wants/tailscope" in path] == []

    system.clean("apt-get purge -y -qq tailscope")
    assert system.files() == before
    assert list((system.root / "var/cache/man").rglob("*tailscope*")) == []


def use(system: Debian) -> None:
    """What administrators do: configure, enable, record, read; and start Python with -O."""
    with (system.root / CONFIGURATION).open("a") as file:
        file.write("# changed\n")
    (system.root / LEDGER).parent.mkdir(parents=True)
    (system.root / LEDGER).write_text("{}")
    added = system.root / "etc/systemd/system/tailscope-agent.service.d/otlp.conf"
    added.parent.mkdir()
    shutil.copy(system.root / "usr/share/doc/tailscope/examples/otlp.conf", added)
    system.clean(f"systemctl enable {' '.join(UNITS)}")
    system.clean("man tailscope-record >/dev/null")
    (cached,) = (system.root / "usr/lib/tailscope").glob(
        "lib/*/site-packages/tailscope/__pycache__"
    )
    (cached / "cli.cpython-311.opt-1.pyc").touch()  # as `python3 -O` leaves it


def test_lintian_finds_nothing(package: Path) -> None:
    if not shutil.which("lintian"):
        pytest.skip("lintian is missing: scripts/setup --for-packages")
    command = ["lintian", "--allow-root", "--tag-display-limit", "0", "--fail-on", "error,warning"]
    done = subprocess.run([*command, package], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (0, "")
