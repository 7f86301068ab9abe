"""Debian's nginx."""

from __future__ import annotations

import subprocess

from thirdparty import built
from thirdparty.case import Case


def nginx(
    case: Case, location: str, upstream: str = "", cpu: int | None = None, modules: str = ""
) -> subprocess.Popen:
    """Debian's nginx with one worker, as a distribution starts it: a master and its child."""
    folder = case.folder
    paths = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in paths)
    (folder / "conf").write_text(
        f"{modules}daemon off; user root; worker_processes 1; error_log {folder}/error; "
        f"pid {folder}/pid; "
        f"events {{}} http {{ access_log off; keepalive_requests 1000000000; {temporary} "
        f"{upstream} server {{ listen 127.0.0.1:{case.port}; {location} }} }}"
    )
    on = () if cpu is None else ("taskset", "-c", cpu)
    return case.run(*on, built.path("nginx"), "-c", folder / "conf", "-p", folder)
