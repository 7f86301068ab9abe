"""The page of one slow request in a real browser: it opens alone, fits, and shows the story."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from browser import Browser
from rig.installed import environment
from windows import request_behind_a_hog, write

TAILSCOPE = Path(__file__).resolve().parents[2] / "target" / "release" / "tailscope"
#: A name that would be markup, if it were not escaped.
NAME = "<hog> & co"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert TAILSCOPE.exists(), "nothing is built: make build"
    folder = tmp_path_factory.mktemp("page")
    window = write(folder / "slow-0001.timeline", request_behind_a_hog(), NAME)
    command = [TAILSCOPE, "timeline", "page", window]
    env = os.environ | environment(folder)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 0, done
    return folder / "slow-0001.1.html"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_opens_alone_and_fits(
    browser: Browser, page: Path, width: int, scheme: str
) -> None:
    browser.show(page, width, scheme)
    assert browser.value("document.documentElement.scrollWidth") <= width
    requests = [request["request"]["url"] for request in browser.said("Network.requestWillBeSent")]
    assert [url for url in requests if url != page.as_uri()] == []
    assert browser.said("Log.entryAdded") == []
    assert browser.said("Runtime.exceptionThrown") == []
    # The picture is seen once, and its text is not shrunk below what can be read.
    scales = browser.value(
        "[...document.querySelectorAll('svg')].filter(it => it.clientWidth > 0)"
        ".map(it => it.clientWidth / it.viewBox.baseVal.width)"
    )
    assert len(scales) == 1 and scales[0] >= 0.85


def test_the_error_says_where_the_program_that_draws_comes_from(tmp_path: Path) -> None:
    window = write(tmp_path / "slow-0001.timeline", request_behind_a_hog())
    command = [TAILSCOPE, "timeline", "page", window]
    env = os.environ | {"PATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    assert (done.returncode, done.stdout) == (3, "")
    assert "there is no tailscope-report" in done.stderr and "tailscope report" in done.stderr
    assert list(tmp_path.iterdir()) == [window]


def test_the_page_shows_the_story_the_lanes_and_the_wake_up(browser: Browser, page: Path) -> None:
    browser.show(page, 1280)
    sentence = f"6.00 ms of 6.05 ms: waiting for CPU 1 behind {NAME}"
    assert browser.value("document.querySelector('h1').textContent") == sentence
    lanes = browser.value("[...document.querySelectorAll('svg > text')].map(t => t.textContent)")
    assert {"request", "CPU 0", "CPU 1", "packet"} <= set(lanes)
    # The red bar is the wait, and about as long as the picture is wide.
    late = browser.value(
        "Math.max(...[...document.querySelectorAll('rect.late')].map(r => r.width.baseVal.value))"
    )
    assert late > 900
    assert browser.value("document.querySelectorAll('.wide path.arrow').length") == 1
    rows = browser.value("document.querySelectorAll('tbody tr').length")
    assert rows == 6
