"""Pages of reports: well-formed, bounded, true to their figures, and deaf to names in them."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_reports import EVIL, QUOTED, observation, stories
from tailscope.errors import TailscopeError
from tailscope.present.pages import draw
from tailscope.present.pages.observe import called, cost_in_words, grown
from tailscope.present.pages.units import milliseconds, octets, rate, short, unbroken
from test_report import Balanced

Told = dict[str, Any]


def pictures(page: str) -> list[ElementTree.Element]:
    found = re.findall(r"<svg.*?</svg>", page, re.S)
    assert not any(word in text for text in found for word in ("nan", "inf,", '"inf"'))
    return [ElementTree.fromstring(text) for text in found]


def names(page: str) -> list[str]:
    return [picture.get("aria-label", "") for picture in pictures(page)]


def texts(page: str) -> str:
    return " ".join(text for picture in pictures(page) for text in picture.itertext())


@pytest.mark.parametrize("told", [observation(), stories()], ids=["observe", "timeline"])
def test_a_page_is_well_formed_and_loads_nothing(told: Told) -> None:
    page = draw(told)
    reader = Balanced()
    reader.feed(page)
    assert reader.open == []
    assert not re.search(r"https?:|//[a-z]|@import|<script|<link|<img|\ssrc=|javascript:", page)
    assert not re.search(r"url\((?!#tip-)", page)
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page and 'name="viewport"' in page
    assert len(page.encode()) < 200_000
    assert all(picture.get("aria-label") for picture in pictures(page))


@pytest.mark.parametrize("evil", [EVIL, QUOTED, "{{ 7 * 7 }}", "\x1b[2J\u202e\x00", "x" * 100_000])
def test_names_from_measured_processes_are_only_text(evil: str) -> None:
    observed = observation(evil, evil)
    observed["by_tag"]["functions"] = [
        {"name": evil, "share": 0.5, "samples": 5, "per_second": [2e6, None]}
    ]
    observed["notices"] = [evil]
    observed["raw"] = {
        "folder": evil,
        "samples": 1,
        "lost": 2,
        "bytes": 3,
        "files": 1,
        "error": evil,
    }
    observed["text"] = evil
    for told in (observed, stories(evil)):
        page = draw(told)
        plain = draw(observation() if told is observed else stories())
        reader, usual = Balanced(), Balanced()
        reader.feed(page)
        usual.feed(plain)
        assert reader.open == [] and reader.seen == usual.seen
        assert "<script" not in page and "<b onload" not in page and "49" not in names(page)
        assert not set("\x1b\u202e\x00") & set(page)
        assert len(page) < 700_000
        assert names(page)


def test_the_answer_leads_the_page_of_an_observation() -> None:
    page = draw(observation())
    assert (
        "channel:7:served grew by 2.2\u00a0M/s; <b>observing took 1.80\u00a0% of its speed</b>"
        in page
    )
    assert "from CPU 1 (another core than CPU 0), 2.0 s" in page
    assert "<p>the clock is coarse.</p>" in page
    assert "That is above the budget of 1.00 %." in page
    assert "3 whose two readings of the clock disagreed by more than 1.00 %" in page
    assert "<pre>101 samples in 2.0 s" in page
    found = names(page)
    for name in (
        "Distribution of the rate of channel:7:served",
        "Rate of counter:7:cycles over time",
        "Distribution of channel:7:served by counter:7:cycles",
        "By channel:7:phase: shares and rates",
        "The rates of channel:7:served and counter:7:cycles together",
        "What observing took from the application's speed",
        "Distribution of the periods",
        "Distribution of how long a sample takes",
        "Distribution of the gaps",
        "Pairs of samples that were dropped, over time",
    ):
        assert found.count(name) == 2, name


def test_an_observation_of_one_counter_that_never_grew_still_has_a_page() -> None:
    told = observation()
    told["rates"] = told["rates"][:1]
    told["rates"][0] |= {"per_second": None, "per_cycle": None, "cells": []}
    told["rates"][0]["kept"] = dict.fromkeys(told["rates"][0]["kept"], None) | {
        "count": 0,
        "max": 0.0,
    }
    told["curves"] = {"all": [[]], "periods": [], "reads": []}
    told["periods"] = told["reads"] = told["rates"][0]["kept"]
    told["series"] = []
    empty = ("ratio", "ratios", "correlation", "joint", "by_tag", "effect", "budget", "kept_share")
    page = draw(told | dict.fromkeys((*empty, "impossible", "period", "observed_cpu"), None))
    assert "the rate of channel:7:served is unknown" in page
    assert "No pair of samples saw it grow." in page
    assert "Unknown: there were too few pauses" in page
    assert pictures(page) == []


def test_values_beyond_the_picture_and_beyond_the_table_are_counted() -> None:
    told = observation()
    value = told["by_tag"]["values"][0]
    told["by_tag"]["values"] = [value | {"tags": [number], "share": 0.001} for number in range(600)]
    page = draw(told)
    assert "Not drawn: 585 more, 58.50 % of the samples together." in page
    assert page.count('<rect class="f-ink"') == 2 * 15
    assert '<td class="long">100 more (--json)</td><td>10.00 %</td><td>10,000</td>' in page


def test_the_page_of_a_request_shows_its_gaps_its_lanes_and_its_wake_up() -> None:
    page = draw(stories())
    assert "<h1>6.00 ms of 6.05 ms: waiting for CPU 1 behind hog</h1>" in page
    assert "server, thread 7" in page and "15 events on Linux 6.18" in page
    assert (
        "Meanwhile in java (process 42), 3.2 s old: 1 class initialised, 210 methods compiled."
        in page
    )
    assert "Lost here: 3 events of hog." in page
    assert "2 intervals are too short to be seen and not drawn." in page
    assert page.count("<tr><td>") == 3
    assert '<td>0.0040 ms</td><td>6.00 ms</td><td><i class="key b-late"></i>' in page
    shown = texts(page)
    for text in ("request", "CPU 0", "CPU 1", "packet", "woken; runs after 6.00 ms", "client"):
        assert text in shown
    assert page.count('class="arrow"') == 2


def test_a_request_without_its_packet_and_a_span_of_a_program_say_so() -> None:
    told = stories()
    told["stories"][0] |= {"from_packet": False, "sent_again_ns": 2_000_000_000}
    page = draw(told)
    assert "The first packet is not in the window" in page
    assert "The server sent again 2.00 s after this answer" in page
    told["stories"][0] |= {"span": "query", "jvms": []}
    assert "The first packet" not in draw(told) and ": query" in draw(told)


def test_a_long_request_lists_its_longest_gaps_in_their_order() -> None:
    told = stories()
    gap = told["stories"][0]["gaps"][0]
    told["stories"][0]["gaps"] = [
        gap | {"at_ns": 1000 * number, "ns": 1000 + number % 7, "name": f"gap {number}"}
        for number in range(3000)
    ]
    page = draw(told)
    assert page.count("<tr><td>") == 2000
    assert "1,000 shorter gaps take" in page
    listed = [int(number) for number in re.findall(r"</i>gap (\d+)</td>", page)]
    assert listed == sorted(listed)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ([], "not a JSON object"),
        ({}, "this JSON has no page"),
        ({"kind": ["observe"]}, "this JSON has no page"),
        ({"rates": []}, "an older tailscope wrote this"),
        ({"target": "p99", "causes": [], "span": {}}, "an older tailscope wrote this"),
        ({"kind": "explain"}, "not a complete explain report"),
        ({"kind": "observe"}, "not a complete observe report (KeyError: 'rates')"),
        ({"kind": "timeline", "stories": []}, "there is no story 1: this file has 0"),
        (observation() | {"seconds": "<b>"}, "not a complete observe report"),
        (observation() | {"joint": [[1e6, 5e5, "9"]]}, "not a complete observe report"),
        (stories() | {"stories": [{**stories()["stories"][0], "picture": None}]}, "has no picture"),
    ],
)
def test_other_json_is_refused_with_the_reason(told: object, words: str) -> None:
    with pytest.raises(TailscopeError, match=re.escape(words)):
        draw(told)


@given(
    st.integers(0),
    st.recursive(st.none() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5),
)
def test_any_value_in_the_place_of_another_makes_a_page_or_an_error(
    number: int, value: object
) -> None:
    for made in (observation(), stories()):
        key = list(made)[number % len(made)]
        with suppress(TailscopeError):
            draw(made | {key: value})


def test_the_cost_is_given_by_its_upper_end_where_it_may_be_nothing() -> None:
    def words(low: float, share: float, high: float) -> str:
        return cost_in_words({"low": low, "share": share, "high": high})

    assert words(0.01, 0.02, 0.03) == "observing took 2.00 % of its speed"
    assert words(-0.002, 0.094, 0.182) == "observing took at most 18.20 % of its speed"
    assert words(-0.03, -0.02, -0.01) == "it was 2.00 % faster while observed"


def test_instructions_by_cycles_are_the_ipc() -> None:
    assert called("counter:7/8:instructions", "counter:7/8:cycles")[0] == "IPC"
    assert called("core:3:cpu-cycles", "core:3:instructions")[0] == "CPI"
    other = called("channel:7:instructions", "channel:7:cycles")
    assert other[1] == "the first counter by the second"


def test_pairs_without_growth_are_left_out_only_where_asked() -> None:
    cells = [(0.0, 60), (5.0, 40)]
    assert grown(cells, True) == cells[1:] and grown(cells, False) == cells
    assert grown(cells[1:], True) == cells[1:] and grown([], True) == []


def test_figures_are_short() -> None:
    numbers = [4_171_234.0, 812.4, 0.05, 999_990.0, 0.0, -1.5, 1e-7]
    shown = ["4.17 M", "812", "0.05", "1 M", "0", "-1.5", "0.0000001"]
    assert [short(number) for number in numbers] == shown
    assert [rate(812.0), rate(1.23e6)] == ["812.000 /s", "1.230 M/s"]
    assert [octets(812), octets(1_400_000), octets(999_999)] == ["812 B", "1.4 MB", "1.0 MB"]
    assert [milliseconds(ns) for ns in (12_100, 339_000, 6_010_000, 12_345_678)] == [
        *("0.0121 ms", "0.339 ms", "6.01 ms", "12.3 ms")
    ]
    assert unbroken("4 M/s of 3 steps, 1.0 %") == "4\u00a0M/s of 3 steps, 1.0\u00a0%"
