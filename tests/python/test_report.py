"""The page: self-contained, small, well-formed, and true to the same figures."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from xml.etree import ElementTree

import pytest
import tailscope
from conftest import Make
from explain_synthetic import World
from tailscope.ledger.causes import MEANING
from tailscope.present.pages.explain import page

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Balanced(HTMLParser):
    """Fails where a tag is closed that is not open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check_one_file(page: str) -> None:
    """The page is well-formed, and loads nothing from elsewhere."""
    reader = Balanced()
    reader.feed(page)
    assert reader.open == []
    assert not re.search(r"https?:|//[a-z]|<script|<link|<img|\ssrc=", page)
    for picture in re.findall(r"<svg.*?</svg>", page, re.S):
        assert ElementTree.fromstring(picture).get("aria-label")
        assert "nan" not in picture


@pytest.fixture(scope="module")
def written(planted: tuple[Path, World]) -> str:
    return page(tailscope.open(planted[0]).explain("p99"))


def test_nothing_is_fetched_and_nothing_is_run(written: str) -> None:
    assert not re.search(
        r"https?:|//[a-z]|url\(|@import|<script|<link|<img|\ssrc=|javascript:", written
    )
    assert len(written.encode()) < 2_000_000


def test_tags_are_balanced_and_pictures_are_well_formed(written: str) -> None:
    reader = Balanced()
    reader.feed(written)
    assert reader.open == []
    pictures = re.findall(r"<svg.*?</svg>", written, re.S)
    assert len(pictures) == 8
    for picture in pictures:
        assert ElementTree.fromstring(picture).get("aria-label")
        assert "nan" not in picture
        assert "inf" not in picture


def test_the_style_sheet_is_not_escaped(written: str) -> None:
    style = written[written.index("<style>") : written.index("</style>")]
    assert '"Segoe UI"' in style and ".f-lock{" in style and "&" not in style


def test_it_follows_the_readers_light_and_width(written: str) -> None:
    assert "prefers-color-scheme: dark" in written
    assert 'name="viewport"' in written
    assert "@media (max-width" in written


def test_it_says_how_it_was_measured_and_what_was_lost(written: str) -> None:
    for words in ("fentry refused: EPERM", "nothing lost", "Linux 6.18.5", "Not measured", "13"):
        assert words in written


def test_names_from_the_ledger_are_only_text(make: Make) -> None:
    nasty = "<script>alert('\"&')</script>"
    world = replace(World(200, seconds=1.0), span=nasty.replace("'", "''"), host="h")
    about = {"machine": {"host": "<b>host</b>", "kernel": "<i>"}, "lost": {"<u>": 5}}
    make("nasty", wall_ns=[1_000] * 190 + [9_000] * 10, world=world)
    folder = make("nasty", about, wall_ns=[1_000] * 20, number=1)
    text = page(tailscope.open(folder).explain("p99", span=nasty))
    for tag in ("<script", "<i>", "<b>host", "<u>"):
        assert tag not in text


@pytest.mark.parametrize("walls", [[5_000], [0, 0, 0], [5_000] * 300, [1, 2, 3, 10**14]])
def test_a_strange_ledger_still_makes_a_page(make: Make, walls: list[int]) -> None:
    text = page(tailscope.open(make(wall_ns=walls)).explain("p99"))
    for picture in re.findall(r"<svg.*?</svg>", text, re.S):
        assert "nan" not in ElementTree.tostring(ElementTree.fromstring(picture)).decode()


@pytest.mark.parametrize("cause", MEANING)
def test_each_cause_has_a_colour_by_day_and_by_night(cause: str) -> None:
    style = files("tailscope.present").joinpath("page.css").read_text()
    assert style.count(f"--{cause}:") == 2
