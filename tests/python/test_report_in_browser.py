"""The report in a real browser: nothing fetched, nothing complained of, nothing cut off."""

from __future__ import annotations

from pathlib import Path

import pytest
import tailscope
from browser import Browser
from explain_synthetic import World
from tailscope.present.pages.explain import save
from tailscope.statistics.explanation import explain
from tailscope.statistics.target import parse

#: A telephone, a small tablet, a desk (px).
WIDTHS = (360, 768, 1280)
#: Elements wider than the page that no box of their own scrolls.
CUT_OFF = """
[...document.querySelectorAll('body *')].filter(it =>
    it.getClientRects().length && !it.closest('.scroll') && !it.closest('svg') &&
    it.getBoundingClientRect().right > document.documentElement.clientWidth + 1
).map(it => it.tagName + '.' + it.className)
"""
#: The luminance contrast (WCAG) of the page's text and of its soft text against its paper.
CONTRAST = """
(() => {
  const seen = (style, name) => {
    const probe = document.createElement('i');
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const rgb = getComputedStyle(probe).color.match(/[0-9.]+/g).slice(0, 3).map(c => c / 255);
    probe.remove();
    const [r, g, b] = rgb.map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const against = (one, other) => (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  return ['--ink', '--soft', '--accent'].map(n => against(seen(0, n), seen(0, '--card')));
})()
"""


@pytest.fixture(scope="module")
def report(planted: tuple[Path, World], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("report") / "report.html"
    explained = explain(tailscope.open(planted[0]), parse("p99"), None, 1, segment_ns=10**11)
    save(explained, str(file))
    return file


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_opens_alone_and_fits(browser: Browser, report: Path, width: int, scheme: str) -> None:
    browser.show(report, width, scheme)
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value(CUT_OFF) == []
    requests = [request["request"]["url"] for request in browser.said("Network.requestWillBeSent")]
    assert [url for url in requests if url != report.as_uri()] == []
    assert browser.said("Log.entryAdded") == []
    assert browser.said("Runtime.consoleAPICalled") == []
    assert browser.said("Runtime.exceptionThrown") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_paper(browser: Browser, report: Path, scheme: str) -> None:
    browser.show(report, 1280, scheme)
    assert min(browser.value(CONTRAST)) >= 4.5


@pytest.mark.parametrize("width", [360, 1280])
def test_each_picture_is_seen_once_and_says_what_it_shows(
    browser: Browser, report: Path, width: int
) -> None:
    browser.show(report, width)
    seen = browser.value(
        "[...document.querySelectorAll('svg')].filter(it => it.getBoundingClientRect().width > 0)"
        ".map(it => it.getAttribute('aria-label'))"
    )
    assert len(seen) == len(set(seen)) == 4
    # Text in a picture that is drawn for this width is not shrunk below what can be read.
    scale = browser.value(
        "Math.min(...[...document.querySelectorAll('svg')].filter(it => it.clientWidth > 0)"
        ".map(it => it.clientWidth / it.viewBox.baseVal.width))"
    )
    assert scale >= 0.85


def test_the_figures_behind_the_pictures_open_by_keyboard(browser: Browser, report: Path) -> None:
    browser.show(report, 360)
    closed = browser.value("document.querySelectorAll('details').length")
    assert closed >= 3
    for _ in range(30):
        browser.press("Tab")
        if browser.value("document.activeElement.matches('details:not([open]) > summary')"):
            browser.press("Enter")
    assert browser.value("document.querySelectorAll('details[open]').length") == closed
    assert browser.value("document.documentElement.scrollWidth") <= 360
    assert browser.value(CUT_OFF) == []
