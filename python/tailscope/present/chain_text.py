"""What another server did while requests waited for it, in words and figures."""

from __future__ import annotations

from collections.abc import Iterator

from tailscope.present.terminal import DIM, Terminal
from tailscope.quantity import duration
from tailscope.statistics.chain import Chain, Opened, words

#: Causes and names below this share of the downstream time are left out. At most `MOST` are listed.
SMALL = 0.01
MOST = 8
WIDTHS = (34, 14, 14)
Row = tuple[str, str, str]


def render(chain: Chain, target: str, terminal: Terminal) -> Iterator[str]:
    """A table of means: of the spans at or above the percentile, and of all."""
    for sentence in words(chain):
        yield from terminal.wrapped(sentence, indent="  ")
    if chain.every.asked <= 0:
        return
    whole, *parts = lines(chain)
    indented = ((f"  {name}", *figures) for name, *figures in parts)
    head, *rest = terminal.table([header(target), whole, *indented], WIDTHS, indent="  ")
    before, after = terminal.paint(DIM)
    yield before + head + after
    yield from rest
    if sentence := by_request(chain):
        yield from terminal.wrapped(sentence, indent="  ")


def header(target: str) -> Row:
    """What the columns are."""
    return ("mean per span", f"from {target} on", "all spans")


def lines(chain: Chain) -> list[Row]:
    """The time that spans waited, and what of it was which cause of the other server."""
    tail, every = chain.tail, chain.every
    return [
        line("downstream", tail.downstream_ns, every.downstream_ns),
        *(
            line(name, tail.causes.get(name, 0), every.causes.get(name, 0))
            for name in listed(chain, "causes")
        ),
        line("the way there and back", tail.path_ns, every.path_ns),
        line("not opened", tail.closed_ns, every.closed_ns),
    ]


def by_request(chain: Chain) -> str:
    """Which requests of the other server took the time of slow spans; "" if none is known."""
    names = listed(chain, "names")
    parts = (f"{name} {duration(chain.tail.names.get(name, 0))}" for name in names)
    return f"of it by request: {', '.join(parts)}" if names else ""


def line(name: str, tail_ns: float, every_ns: float) -> Row:
    """A row of the table."""
    return (name, duration(tail_ns), duration(every_ns))


def listed(chain: Chain, what: str) -> list[str]:
    """The largest causes or names of both columns, the largest of the tail first."""

    def part(opened: Opened, name: str) -> float:
        return getattr(opened, what).get(name, 0.0) / max(opened.downstream_ns, 1e-9)

    every = {*getattr(chain.tail, what), *getattr(chain.every, what)}
    matter = [n for n in every if max(part(chain.tail, n), part(chain.every, n)) >= SMALL]
    return sorted(matter, key=lambda name: (-part(chain.tail, name), name))[:MOST]
