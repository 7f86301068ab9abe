"""Ledgers in a bucket: explained as those in a folder; what is wrong is one sentence."""

from __future__ import annotations

import json
import logging
import os
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import servers
import tailscope
from command import Command, flat, runner, sentence
from tailscope import cli, diff_cli

pytest.importorskip("s3fs", reason="s3fs is not installed (requirements-extras.lock)")
pytest.importorskip("moto", reason="moto is not installed (requirements-extras.lock)")


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """The address of a server that speaks S3 over HTTP."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(store: str, two_values: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket with one ledger, under a name that looks like a pattern."""
    from tailscope.ledger.storage import buckets

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_ENDPOINT_URL": store,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/nowhere",
        "AWS_SHARED_CREDENTIALS_FILE": "/nowhere",
    }.items():
        monkeypatch.setenv(name, value)
    # The client remembers the keys of an earlier test.
    fresh()
    s3 = buckets()
    if not s3.exists("runs"):
        s3.mkdir("runs")
        s3.put(str(two_values), "s3://runs/main [1]/two", recursive=True)
    yield "s3://runs/main [1]/two"
    fresh()


def fresh() -> None:
    """Forget clients and their keys."""
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()


def auth_from(store: str, requests: int) -> None:
    """Keys are looked at from that many requests on."""
    wanted = urllib.request.Request(
        f"{store}/moto-api/reset-auth",
        data=str(requests).encode(),
        headers={"Content-Type": "text/plain"},
    )
    urllib.request.urlopen(wanted).close()


@pytest.fixture
def explain(capsys: pytest.CaptureFixture[str]) -> Command:
    return runner(cli.main, capsys)


@pytest.mark.parametrize("ending", ["", "/", "/ledger.json"])
def test_a_ledger_in_a_bucket_is_explained_as_in_a_folder(
    bucket: str, ending: str, two_values: Path, explain: Command
) -> None:
    expected, found = (
        json.loads(explain(where, "--json")[1]) for where in (two_values, bucket + ending)
    )
    assert found["recordings"][0].pop("path") == bucket
    assert expected["recordings"][0].pop("path") == str(two_values)
    assert expected["causes"][0]["name"] == "lock"
    assert found == expected


def test_one_file_of_a_bucket_is_explained(bucket: str, explain: Command) -> None:
    (file,) = tailscope.open(bucket).recordings[0].files
    assert file.startswith(bucket) and file.endswith(".parquet")
    assert json.loads(explain(file, "--json")[1])["causes"][0]["name"] == "lock"


def test_diff_takes_buckets_on_either_side(
    bucket: str, two_values: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    diff = runner(diff_cli.main, capsys)
    for sides in ((bucket, two_values), (two_values, bucket), (bucket, bucket)):
        code, out, _ = diff(*sides, "--json", "--fail-over", "5%")
        assert (code, json.loads(out)["kinds"][0]["span"]) == (0, "recv..send")


def test_clickhouse_gets_the_files_of_a_bucket(
    bucket: str, explain: Command, tmp_path: Path
) -> None:
    pytest.importorskip("chdb", reason="chDB is not installed (requirements-extras.lock)")
    with servers.clickhouse(tmp_path) as engine:
        found = explain(bucket, "--json", "--engine", engine)
    assert json.loads(found[1]) == json.loads(explain(bucket, "--json")[1])


def test_a_truncated_file_in_a_bucket_is_left_out(bucket: str, explain: Command) -> None:
    from tailscope.ledger.storage import buckets

    with buckets().open(f"{bucket}-cut/a.parquet", "wb") as file:
        file.write(b"PAR1 and no end")
    assert "truncated" in sentence(explain(f"{bucket}-cut"), "tailscope explain")


def test_a_bucket_that_is_not_there_is_one_sentence(bucket: str, explain: Command) -> None:
    said = sentence(explain("s3://nobody/x"), "tailscope explain")
    assert "there is no ledger at s3://nobody/x: The specified bucket does not exist" in said


def test_a_ledger_that_is_not_in_the_bucket_is_one_sentence(bucket: str, explain: Command) -> None:
    said = sentence(explain("s3://runs/other"), "tailscope explain")
    assert "there is no ledger at s3://runs/other" in said


def test_keys_that_may_not_are_one_sentence(bucket: str, store: str, explain: Command) -> None:
    auth_from(store, 0)
    try:
        said = sentence(explain(bucket), "tailscope explain")
    finally:
        auth_from(store, sys.maxsize)
    assert f"can't read {bucket} with these AWS keys" in said


def test_no_keys_are_one_sentence(
    bucket: str, explain: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    fresh()
    said = sentence(explain(bucket), "tailscope explain", code=3)
    assert "credentials" in said


def test_a_store_that_is_not_there_is_one_sentence(
    bucket: str, explain: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    fresh()
    said = sentence(explain(bucket), "tailscope explain", code=3)
    assert f"can't reach {bucket}" in said


def test_without_s3fs_the_sentence_says_what_to_install(
    explain: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    said = flat(sentence(explain("s3://runs/x"), "tailscope explain", code=3))
    assert "pip install 'tailscope[s3]'" in said
