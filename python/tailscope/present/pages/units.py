"""Figures of the pages in words. Lengths of time are in `quantity`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

PREFIXES = ((1e9, " G"), (1e6, " M"), (1e3, " k"), (1.0, ""))
#: A number that must stay on one line with its unit.
UNIT = re.compile(r"(\d) (/s|[kMG](?:/s)?|%|ns|µs|ms|s)(?![a-zA-Z])")


def prefix(value: float) -> tuple[float, str]:
    """The prefix with which a number reads best, and how much it stands for."""
    found = (pair for pair in PREFIXES if value >= 0.9995 * pair[0])
    return next(found, PREFIXES[-1])


def short(value: float) -> str:
    """A number in three digits: `4.17 M`, `812`, `0.05`."""
    scale, letter = prefix(abs(value))
    scaled = value / scale
    if scaled == 0 or not math.isfinite(scaled):
        return "0"
    digits = min(max(2 - math.floor(math.log10(abs(scaled) * 1.0005)), 0), 9)
    text = f"{scaled:.{digits}f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) + letter


def whole(value: float) -> str:
    """A count or a number of cycles, all its digits: `1,234,567`."""
    return f"{round(value):,}"


def cycles(value: float) -> str:
    """A number of cycles: all its digits below 100,000, then three of them."""
    return whole(value) if value < 1e5 else short(value)


def rate(per_second: float) -> str:
    """A rate in four digits or more: `1.230 M/s`, `812.000 /s`."""
    for scale, letter in PREFIXES[:-1]:
        if per_second >= scale:
            return f"{per_second / scale:.3f}{letter}/s"
    return f"{per_second:.3f} /s"


def brief_rate(per_second: float) -> str:
    """A rate in three digits: `1.23 M/s`."""
    text = short(per_second)
    return f"{text}/s" if " " in text else f"{text} /s"


def share(fraction: float) -> str:
    """A fraction in percent, with a minus sign that is as wide as a plus: `0.42 %`."""
    return f"{100 * fraction:.2f} %".replace("-", "\u2212")


def octets(count: float) -> str:
    """Bytes: `812 B`, `1.4 MB`."""
    if count < 1e3:
        return f"{count} B"
    for scale, unit in ((1e9, "GB"), (1e6, "MB")):
        if count >= 0.99995 * scale:
            return f"{count / scale:.{2 if unit == 'GB' else 1}f} {unit}"
    return f"{count / 1e3:.1f} kB"


def milliseconds(ns: float) -> str:
    """A length in ms, in all units of a story the same, with digits enough for what it is."""
    ms = ns / 1e6
    digits = 4 if ms < 0.1 else 3 if ms < 1 else 2 if ms < 10 else 1
    return f"{ms:.{digits}f} ms"


def or_dash(value: float | None, shown: Callable[[float], str]) -> str:
    """The figure in words, or a dash where it is unknown."""
    return "–" if value is None else shown(value)


def unbroken(text: str) -> str:
    """The text with each number beside its unit."""
    return UNIT.sub("\\1\u00a0\\2", text)
