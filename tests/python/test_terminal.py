"""Layout: widths, and letters where a locale has ASCII only."""

from __future__ import annotations

import io

import pytest
from tailscope.present.terminal import Terminal, has_unicode, plain

ASCII = Terminal(unicode=False)


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("12.3 µs", "12.3 us"),
        ("3.28–3.89 ms", "3.28-3.89 ms"),
        ("-1.20…3.40 ms", "-1.20...3.40 ms"),
        ("│ 1 ± 2 ≥ 1 │", "| 1 +/- 2 >= 1 |"),
        ("R²", "R^2"),
        ("größe 名", "grosse ?".replace("ss", "?")),
    ],
)
def test_letters_become_ascii(text: str, spelled: str) -> None:
    assert plain(text) == spelled
    assert plain(spelled) == spelled


def test_columns_stay_aligned_where_letters_grow() -> None:
    rows = [("cause", "interval"), ("lock", "-1.2…3.4 ms"), ("io", "1 µs")]
    for terminal in (Terminal(), ASCII):
        assert len({len(line) for line in terminal.table(rows, (5, 8))}) == 1


def test_a_table_gives_up_its_least_widths_before_it_is_too_wide() -> None:
    rows = [("cause", "saves"), ("lock", "1 ms")]
    assert len(Terminal(80).table(rows, (30, 30))[0]) == 61
    assert len(Terminal(50).table(rows, (30, 30))[0]) == 11


def test_names_are_cut_to_what_they_may_take() -> None:
    assert Terminal().cut("abcdefgh", 6) == "abcde…"
    assert ASCII.cut("abcdefgh", 6) == "abc..."
    assert ASCII.cut("abcdef", 6) == "abcdef"


def stream(encoding: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"LC_ALL": "C.UTF-8"}, True),
        ({"LC_ALL": "de_DE.utf8", "LANG": "C"}, True),
        ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, False),
        ({"LC_ALL": "", "LC_CTYPE": "POSIX", "LANG": "en_US.UTF-8"}, False),
        ({"LANG": "en_US.UTF-8"}, True),
        ({}, False),
    ],
)
def test_the_locale_decides_in_posix_order(environment: dict[str, str], expected: bool) -> None:
    assert has_unicode(stream("utf-8"), environment) is expected
    assert has_unicode(stream("ascii"), environment) is False
