"""Quantities: an estimate with its interval, and numbers as people read them, in three figures."""

from __future__ import annotations

from dataclasses import dataclass

UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


@dataclass(frozen=True)
class Interval:
    """An estimate in ns with its 95 % bootstrap interval."""

    ns: float
    lo: float
    hi: float


def figures(value: float, count: int = 3) -> str:
    """A number with so many significant figures, without an exponent."""
    if value == 0:
        return "0"
    whole = max(1, len(str(int(abs(value)))))
    text = f"{value:.{max(0, count - whole)}f}"
    # 99.98 is 100.0 by now, one figure too many.
    grown = len(text.lstrip("-").partition(".")[0]) > whole
    return f"{value:.{max(0, count - whole - 1)}f}" if grown else text


def scale(ns: float) -> tuple[float, str]:
    """The unit in which a length reads best, and how many ns it has."""
    for size, unit in UNITS:
        # 999.7 µs would be printed as 1000 µs.
        if abs(ns) >= size * 0.9995:
            return size, unit
    return UNITS[-1]


def duration(ns: float, count: int = 3) -> str:
    """A length of time: 41.2 µs, 3.64 ms."""
    size, unit = scale(ns)
    return f"{round(ns) if size == 1 else figures(ns / size, count)} {unit}"


def signed(ns: float) -> str:
    """A change: +41.2 µs, -3.64 ms, 0 ns."""
    return f"+{duration(ns)}" if round(ns) > 0 else duration(ns if round(ns) else 0.0)


def growth(share: float) -> str:
    """A relative change: +5.1 %, -12 %, +250 %."""
    value = 100 * share
    digits = 0 if abs(value) >= 9.95 else 1
    return f"{value:+,.{digits}f} %" if round(value, digits) else "0 %"


def span_of_time(interval: Interval) -> str:
    """An interval in the unit of its larger end: 3.28–3.89 ms."""
    size, unit = scale(max(abs(interval.lo), abs(interval.hi)))
    digits = 3 if size > 1 else 0
    lo, hi = figures(interval.lo / size, digits), figures(interval.hi / size, digits)
    if lo == hi:
        return f"{lo} {unit}"
    return f"{lo}{'…' if lo.startswith('-') else '–'}{hi} {unit}"


def percent(share: float | None) -> str:
    """A fraction as a percentage; what is there but tiny is not 0."""
    if share is None:
        return "–"
    value = 100 * share
    if abs(value) >= 9.95:
        return f"{value:.0f} %"
    if abs(value) >= 0.095:
        return f"{value:.1f} %"
    return "0 %" if abs(value) < 0.0005 else ("<0.1 %" if value > 0 else "0 %")


def ratio(value: float | None) -> str:
    """An impact value: 0.98; what rounds to nothing is 0."""
    if value is None:
        return "–"
    return "0" if abs(value) < 0.005 else f"{value:.2f}"


def count(value: float | None) -> str:
    """A count: 9,812,345; beyond seven digits in millions."""
    if value is None:
        return "–"
    return f"{value / 1e6:,.1f} M" if value >= 1e7 else f"{value:,.0f}"
