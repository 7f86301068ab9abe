"""The agent's export over TLS, to collectors whose certificates are made here."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from rig.agent import LOOPBENCH, Agent, all_exported, dropped, recorded
from rig.collector import Collector, serving
from rig.processes import Started
from rig.waiting import until

Run = Callable[..., Started]
Start = Callable[..., Agent]
Serve = Callable[..., Collector]
#: A new key, as openssl is told.
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
#: What `openssl ca` needs to know.
CA = """[ca]
default_ca = here
[here]
database = index.txt
new_certs_dir = .
rand_serial = yes
default_md = sha256
unique_subject = no
policy = any
[any]
commonName = supplied
"""


def openssl(folder: Path, *arguments: object) -> None:
    subprocess.run(
        ["openssl", *map(str, arguments)], cwd=folder, check=True, capture_output=True, timeout=60
    )


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, ca.pem, and what it can sign with."""
    made = tmp_path_factory.mktemp("authority")
    authority = ["-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test"]
    openssl(made, "req", "-x509", *KEY, *authority)
    server = ["-keyout", "key.pem", "-out", "request.pem", "-subj", "/CN=collector"]
    openssl(made, "req", *KEY, *server)
    (made / "ca.conf").write_text(CA)
    (made / "index.txt").touch()
    return made


@pytest.fixture
def stranger(folder: Path) -> Path:
    """The certificate of an authority that signed nothing."""
    other = folder / "other.pem"
    openssl(folder, "req", "-x509", *KEY, "-keyout", "o.key", "-out", other, "-subj", "/CN=other")
    return other


@pytest.fixture
def serve(authority: Path) -> Iterator[Serve]:
    """Collectors that show a certificate for this name, which is valid until this date."""
    with ExitStack() as stack:

        def start(name: str, until_date: str = "20991231") -> Collector:
            (authority / "names").write_text(f"subjectAltName={name}\n")
            openssl(
                *(authority, "ca", "-batch", "-config", "ca.conf", "-cert", "ca.pem"),
                *("-keyfile", "ca.key", "-in", "request.pem", "-out", "server.pem", "-notext"),
                *("-extfile", "names", "-startdate", "20200101000000Z"),
                *("-enddate", f"{until_date}000000Z"),
            )
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(authority / "server.pem", authority / "key.pem")
            return stack.enter_context(serving(Collector(context)))

        yield start


def export(endpoint: str, ca_file: Path | None) -> str:
    trusted = f'ca_file = "{ca_file}"\n' if ca_file else ""
    return f'endpoint = "{endpoint}"\n{trusted}spans_per_second = 100000\ntimeout = "2s"'


def some_spans(run: Run) -> None:
    """So few that one batch takes them: each batch that fails is tried for 8 s."""
    run("loopbench", "--spans", 100, "--think-us", 5000).wait().clean()


def test_spans_come_to_a_collector_that_shows_a_trusted_certificate(
    agent: Start, run: Run, serve: Serve, authority: Path
) -> None:
    collector = serve("IP:127.0.0.1")
    started = agent(LOOPBENCH, otlp=export(collector.endpoint, authority / "ca.pem"))
    some_spans(run)
    all_exported(started, lambda: len(collector.spans()))
    started.stop().clean()
    assert "can't export spans" not in started.err


def test_the_systems_certificates_are_trusted_where_no_others_are_named(
    agent: Start, run: Run, serve: Serve, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca.pem"))
    collector = serve("IP:127.0.0.1")
    agent(LOOPBENCH, otlp=export(collector.endpoint, None))
    some_spans(run)
    until(collector.spans, "spans have come")


@pytest.mark.parametrize(
    ("name", "until_date", "is_trusted", "why"),
    [
        ("IP:127.0.0.1", "20991231", False, "to the issuer's certificate"),
        ("DNS:elsewhere.example", "20991231", True, "not valid for name"),
        ("IP:127.0.0.1", "20200102", True, "expired"),
    ],
)
def test_a_certificate_that_is_not_right_is_told_and_nothing_is_sent(
    agent: Start,
    run: Run,
    serve: Serve,
    authority: Path,
    stranger: Path,
    name: str,
    until_date: str,
    is_trusted: bool,
    why: str,
) -> None:
    collector = serve(name, until_date)
    trusted = authority / "ca.pem" if is_trusted else stranger
    started = agent(LOOPBENCH, otlp=export(collector.endpoint, trusted))
    some_spans(run)
    kept = recorded(started)
    until(lambda: why in started.err, "it is told")
    assert started.err.count("can't export spans to https://") == 1
    assert collector.spans() == [] and started.lost() == {}
    started.stop().clean()
    assert collector.spans() == []
    assert started.rows() == kept


def test_what_is_not_sent_for_its_certificate_is_counted_in_the_end(
    agent: Start, run: Run, serve: Serve, stranger: Path
) -> None:
    collector = serve("IP:127.0.0.1")
    started = agent(LOOPBENCH, otlp=export(collector.endpoint, stranger))
    some_spans(run)
    kept = recorded(started)
    until(lambda: dropped(started.figures()) == kept, "each is counted as dropped", 60)
    assert collector.spans() == [] and started.lost() == {}


def test_a_collector_that_never_shakes_hands_holds_up_nobody(
    agent: Start, run: Run, authority: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"https://127.0.0.1:{silent.getsockname()[1]}"
        started = agent(LOOPBENCH, otlp=export(endpoint, authority / "ca.pem") + "\nqueue = 100")
        some_spans(run)
        kept = recorded(started)
        figures = started.figures()
        assert figures["tailscope_rows_total"] == kept and started.lost() == {}
        until(lambda: "timeout" in started.err, "it is told")
        started.stop().clean()
        assert started.rows() == kept


def test_an_endpoint_that_speaks_no_tls_is_told(agent: Start, run: Run, authority: Path) -> None:
    with serving(Collector()) as plain:
        endpoint = plain.endpoint.replace("http:", "https:")
        started = agent(LOOPBENCH, otlp=export(endpoint, authority / "ca.pem"))
        some_spans(run)
        until(lambda: "it does not use TLS" in started.err, "it is told")
