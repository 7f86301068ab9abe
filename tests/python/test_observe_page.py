"""The page of an observation in a real browser: it opens alone, fits, is read by keyboard and by
screen readers, and its pictures show what the report says."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from rig.installed import environment
from rig.observer import has_channels
from rig.processes import favoured
from rig.waiting import until

ROOT = Path(__file__).resolve().parents[2]
TAILSCOPE = ROOT / "target" / "release" / "tailscope"
PACED = ROOT / "target" / "lab" / "paced"
#: Elements wider than the page that no box of their own scrolls.
CUT_OFF = """
[...document.querySelectorAll('body *')].filter(it =>
    it.getClientRects().length && !it.closest('.scroll') && !it.closest('svg') &&
    it.getBoundingClientRect().right > document.documentElement.clientWidth + 1
).map(it => it.tagName + '.' + it.className)
"""
#: Texts of a picture that lie on each other, or stand out of the page.
CLASHES = """
[...document.querySelectorAll('svg')].filter(svg => svg.clientWidth > 0).flatMap(svg => {
  const texts = [...svg.querySelectorAll('text')].map(it => [it.textContent, it.getBoundingClientRect()]);
  const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
      Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 5;
  const page = document.documentElement.clientWidth;
  const out = texts.filter(([, a]) => a.left < 0 || a.right > page).map(([text]) => text + ' is cut off');
  return out.concat(texts.flatMap(([text, a], i) =>
      texts.slice(i + 1).filter(([, b]) => over(a, b)).map(([other]) => text + ' | ' + other)));
})
"""  # noqa: E501
#: The luminance contrast (WCAG) of what is drawn and written, against the cards' paper.
CONTRAST = """
(() => {
  const seen = name => {
    const probe = document.createElement('i');
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const rgb = getComputedStyle(probe).color.match(/[0-9.]+/g).slice(0, 3).map(c => c / 255);
    probe.remove();
    const [r, g, b] = rgb.map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const card = seen('--card');
  const against = one => (Math.max(one, card) + 0.05) / (Math.min(one, card) + 0.05);
  return ['--ink', '--soft', '--one', '--two', '--three', '--four', '--lost'].map(n => against(seen(n)));
})()
"""  # noqa: E501


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The page of a program with two counters and a tag of four values, and the report as JSON."""
    assert TAILSCOPE.exists() and PACED.exists(), "nothing is built: make build"
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("with one CPU there is nothing to observe from")
    page = tmp_path_factory.mktemp("observed") / "page.html"
    paced = [PACED, "--cycles", "1000", "--phases", "4", "--seconds", "600"]
    command = [*favoured(), "taskset", "-c", str(cpus[0]), *paced]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        until(lambda: has_channels(running.pid), "paced made its channels")
        names = [f"channel:{running.pid}:{name}" for name in ("rounds", "doubled", "phase")]
        command = [*favoured(), TAILSCOPE, "observe", "--signal", names[0], "--signal", names[1]]
        command += ["--tag", names[2], "--period", "20000", "--duration", "2s", "--json"]
        command += ["--html", page, "--quiet"]
        env = os.environ | environment(page.parent)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    finally:
        running.kill()
        running.wait()
    assert done.returncode == 0, done
    return page, json.loads(done.stdout)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_the_page_opens_alone_and_fits(
    browser: Browser, observed: tuple[Path, dict], width: int, scheme: str
) -> None:
    page, _ = observed
    browser.show(page, width, scheme)
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value(CUT_OFF) == []
    assert browser.value(CLASHES) == []
    requests = [request["request"]["url"] for request in browser.said("Network.requestWillBeSent")]
    assert [url for url in requests if url != page.as_uri()] == []
    assert browser.said("Log.entryAdded") == []
    assert browser.said("Runtime.exceptionThrown") == []
    assert browser.value("document.querySelectorAll('script').length") == 0
    assert page.stat().st_size < 2_000_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_curves_stand_out_from_their_paper(
    browser: Browser, observed: tuple[Path, dict], scheme: str
) -> None:
    browser.show(observed[0], 1280, scheme)
    ink, soft, *curves = browser.value(CONTRAST)
    assert min(ink, soft) >= 4.5 and min(curves) >= 3


@pytest.mark.parametrize("width", [360, 1280])
def test_each_picture_is_seen_once_and_says_what_it_shows(
    browser: Browser, observed: tuple[Path, dict], width: int
) -> None:
    page, told = observed
    browser.show(page, width)
    seen = browser.value(
        "[...document.querySelectorAll('svg')].filter(it => it.clientWidth > 0)"
        ".map(it => [it.getAttribute('aria-label'), it.querySelector('desc').textContent])"
    )
    names = [name for name, _ in seen]
    rates = [rate["signal"] for rate in told["rates"]]
    expected = [
        text
        for rate in rates
        for text in (f"Distribution of the rate of {rate}", f"Rate of {rate} over time")
    ]
    assert set(expected) <= set(names) and len(names) == len(set(names))
    others = {"Distribution of the periods", "Distribution of how long a sample takes"}
    others |= {"Pairs of samples that were dropped, over time"}
    others |= {f"The rates of {rates[0]} and {rates[1]} together"}
    others |= {f"Distribution of {rates[0]} by {rates[1]}"}
    if told["effect"]:
        others |= {"What observing took from the application's speed"}
    if told["gaps"]["count"]:
        others |= {"Distribution of the gaps"}
    assert others <= set(names)
    assert all(about for _, about in seen)
    # Text in a picture that is drawn for this width is not shrunk below what can be read.
    scale = browser.value(
        "Math.min(...[...document.querySelectorAll('svg')].filter(it => it.clientWidth > 0)"
        ".map(it => it.clientWidth / it.viewBox.baseVal.width))"
    )
    assert scale >= 0.85


def test_the_pictures_show_what_the_report_says(
    browser: Browser, observed: tuple[Path, dict]
) -> None:
    page, told = observed
    browser.show(page, 1280)
    # A bar for each value of the tag, as long as its share.
    bars = browser.value(
        "[...document.querySelectorAll('.wide rect.f-ink')]"
        ".map(it => [it.textContent, it.width.baseVal.value])"
    )
    values = told["by_tag"]["values"]
    assert len(bars) == len(values) >= 4
    longest = max(value["share"] for value in values)
    for (text, width), value in zip(bars, values, strict=True):
        assert text.startswith(f"{value['tags'][0]}: ")
        assert width / bars[0][1] == pytest.approx(value["share"] / longest, abs=0.02)
    # The distribution of the first rate names its median.
    text = browser.value("document.querySelector('.wide svg').textContent")
    median = told["rates"][0]["kept"]["p50"]
    found = re.search(r"p50 ([0-9.]+) ([kMG]?)/s", text)
    assert found, text
    scale = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[found[2]]
    assert float(found[1]) * scale == pytest.approx(median, rel=0.02)
    # Loss and method are said.
    account = browser.value("document.querySelector('dl.how').textContent")
    assert f"{told['disagreed']:,} whose two readings of the clock disagreed" in account


def test_the_figures_behind_the_pictures_open_by_keyboard(
    browser: Browser, observed: tuple[Path, dict]
) -> None:
    browser.show(observed[0], 360)
    closed = browser.value("document.querySelectorAll('details').length")
    # Two rates, one by the other, the tag, both rates together, and all of it as text.
    assert closed == 6
    for _ in range(30):
        browser.press("Tab")
        if browser.value("document.activeElement.matches('details:not([open]) > summary')"):
            browser.press("Enter")
    assert browser.value("document.querySelectorAll('details[open]').length") == closed
    assert browser.value("document.documentElement.scrollWidth") <= 360
    assert browser.value(CUT_OFF) == []
