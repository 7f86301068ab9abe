"""What another server did while requests waited for it, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from tailscope.present.terminal import DIM, Terminal
from tailscope.quantity import duration
from tailscope.statistics.chain import Chain, Opened, words

#: Causes and names below this share of the downstream time are left out. At most `MOST` are listed.
SMALL = 0.01
MOST = 8
WIDTHS = (34, 14, 14)


def render(chain: Chain, target: str, terminal: Terminal) -> Iterator[str]:
    """A table of means: of the spans at or above the percentile, and of all."""
    for sentence in words(chain):
        yield from terminal.wrapped(sentence, indent="  ")
    if chain.every.asked <= 0:
        return
    rows = [("mean per span", f"from {target} on", "all spans")]
    rows.append(line("downstream", chain.tail.downstream_ns, chain.every.downstream_ns))
    for name in listed(chain, "causes"):
        rows.append(
            line(f"  {name}", chain.tail.causes.get(name, 0), chain.every.causes.get(name, 0))
        )
    rows.append(line("  the way there and back", chain.tail.path_ns, chain.every.path_ns))
    rows.append(line("  not opened", chain.tail.closed_ns, chain.every.closed_ns))
    head, *rest = terminal.table(rows, WIDTHS, indent="  ")
    before, after = terminal.paint(DIM)
    yield before + head + after
    yield from rest
    if names := listed(chain, "names"):
        parts = (f"{name} {duration(chain.tail.names.get(name, 0))}" for name in names)
        yield from terminal.wrapped(f"of it by request: {', '.join(parts)}", indent="  ")


def line(name: str, tail_ns: float, every_ns: float) -> tuple[str, str, str]:
    """A row of the table."""
    return (name, duration(tail_ns), duration(every_ns))


def listed(chain: Chain, what: str) -> list[str]:
    """The largest causes or names of both columns, the largest of the tail first."""

    def part(opened: Opened, name: str) -> float:
        return getattr(opened, what).get(name, 0.0) / max(opened.downstream_ns, 1e-9)

    every = {*getattr(chain.tail, what), *getattr(chain.every, what)}
    matter = [n for n in every if max(part(chain.tail, n), part(chain.every, n)) >= SMALL]
    return sorted(matter, key=lambda name: (-part(chain.tail, name), name))[:MOST]
