"""`bench/proof.md`: the matrix, its bars, every miss with its figures, and all figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proof.faults import FAULTS, ON_SERVER
from proof.servers import SERVERS

#: What is asked of the whole matrix.
TOP_BAR, HELD_BAR = 0.95, 0.80

Cells = dict[str, dict[str, Any]]


def render(cells: Cells, about: str) -> str:
    """The page, from the cells by their `server:fault`."""
    return "\n".join(
        [
            "# The proof",
            "",
            "Real servers with a fault planted in each: is the fault the top cause of `tailscope "
            "explain`, and does p99 after its removal lie in the 95 % interval that was predicted "
            "from the phases with the fault alone? [How it is done](../lab/proof/README.md); "
            f"`make proof` does it again. {lengths(cells)}",
            "",
            about,
            "",
            *bars(cells),
            "",
            *matrix(cells),
            "",
            *footnotes(),
            "",
            *misses(cells),
            "",
            *figures(cells),
            "",
            *expected(),
            "",
        ]
    )


def lengths(cells: Cells) -> str:
    """How long the cells were measured."""
    found = sorted({cell["seconds"] for cell in cells.values() if "seconds" in cell})
    return (
        f"Phases of a cell together: {', '.join(f'{one:g}' for one in found)} s." if found else ""
    )


def bars(cells: Cells) -> Iterator[str]:
    """What is asked, and what was found."""
    measured = {key: cell for key, cell in cells.items() if "error" not in cell}
    planted = [cell for key, cell in measured.items() if not key.endswith(":none")]
    calm = [cell for key, cell in measured.items() if key.endswith(":none")]
    failed = len(cells) - len(measured)
    yield "| what | bar | found | held |"
    yield "| --- | --- | --- | --- |"
    yield bar("the planted fault is the top cause", planted, "top", TOP_BAR)
    yield bar("nothing planted: no cause above 10 % of p99", calm, "top", 1.0)
    yield bar("p99 after removal is in the predicted interval", planted, "held", HELD_BAR)
    narrow = sum(cell.get("held_by_estimate", False) for cell in planted)
    yield f"| …and in that of the prediction alone | | {narrow} of {len(planted)} | |"
    large = [cell for cell in planted if cell["enough"]]
    if len(large) < len(planted):
        top, held = (sum(bool(cell.get(key)) for cell in large) for key in ("top", "held"))
        yield (
            "| …where the fault was large enough to tell: top cause / prediction "
            f"| | {top} / {held} of {len(large)} | |"
        )
    if failed:
        yield f"| cells that could not be measured | 0 | {failed} | NO |"


def bar(what: str, cells: list[dict[str, Any]], key: str, least: float) -> str:
    """One line of the bars."""
    yes = sum(bool(cell.get(key)) for cell in cells)
    share = yes / len(cells) if cells else 0.0
    held = "–" if not cells else "yes" if share >= least else "NO"
    asked = "all" if least == 1.0 else f"at least {least:.0%}".replace("%", " %")
    found = f"{yes} of {len(cells)}" + (f" ({share:.0%})".replace("%", " %") if cells else "")
    return f"| {what} | {asked} | {found} | {held} |"


def matrix(cells: Cells) -> Iterator[str]:
    """A row a fault, a column a server."""
    yield "Top cause / prediction; ✓ right, ✗ wrong, – does not apply (footnote)."
    yield ""
    yield "| | " + " | ".join(server.title for server in SERVERS.values()) + " |"
    yield "| --- |" + " --- |" * len(SERVERS)
    notes = reasons()
    for fault, told in FAULTS.items():
        line = [told.title]
        for server, kind in SERVERS.items():
            if fault in kind.lacks:
                line.append(f"– [{notes.index(kind.lacks[fault]) + 1}]")
            else:
                line.append(mark(cells.get(f"{server}:{fault}"), bool(told.causes)))
        yield "| " + " | ".join(line) + " |"


def mark(cell: dict[str, Any] | None, planted: bool) -> str:
    """One cell of the matrix."""
    if cell is None:
        return "not measured"
    if "error" in cell:
        return "FAILED"
    tick = {True: "✓", False: "✗"}
    return tick[cell["top"]] + (f" / {tick[cell['held']]}" if planted else "")


def reasons() -> list[str]:
    """Why some cells do not apply, each reason once."""
    found = [reason for server in SERVERS.values() for reason in server.lacks.values()]
    return list(dict.fromkeys(found))


def footnotes() -> Iterator[str]:
    """The reasons, numbered."""
    for number, reason in enumerate(reasons(), 1):
        yield f"{number}. Does not apply: {reason}."


def misses(cells: Cells) -> Iterator[str]:
    """Every miss."""
    yield "## Misses"
    yield ""
    missed = {key: cell for key, cell in cells.items() if is_miss(cell)}
    if not missed:
        yield "None."
    for key, cell in missed.items():
        if "error" in cell:
            yield f"- **{key}** could not be measured: {cell['error']}"
        if cell.get("top") is False:
            yield f"- **{key}**, top cause: {ranking(cell)}, of a p99 of {us(cell['p99_ns']['ns'])}"
        if cell.get("held") is False:
            yield (
                f"- **{key}**, prediction: {interval(cell['predicted_ns'])}; came true "
                f"{interval(cell['calm_p99_ns'])}"
            )


def is_miss(cell: dict[str, Any]) -> bool:
    """Whether anything in a cell is not as it should be."""
    return "error" in cell or not cell["top"] or not cell.get("held", True)


def figures(cells: Cells) -> Iterator[str]:
    """All cells with their figures."""
    yield "## Figures"
    yield ""
    yield (
        "In µs, with 95 % intervals; *size*: the fault's, in parentheses where even the largest "
        "was too small to tell; *with*: the phases with the fault; *worth most*: the causes that "
        "save most, of two faults at once those with the largest fair share; *predicted*: p99 "
        "without the fault, from these; *without*: the phases without it."
    )
    yield ""
    yield "| cell | size | spans | p50 with | p99 with | worth most | predicted | p99 without |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for key, cell in cells.items():
        if "error" in cell:
            continue
        predicted = cell.get("predicted_ns")
        line = [
            *(key, size(key, cell), f"{cell['spans']:,.0f}"),
            *(us(cell["p50_ns"]), interval(cell["p99_ns"])),
            *(ranking(cell), interval(predicted) if predicted else "–"),
            interval(cell["calm_p99_ns"]),
        ]
        yield "| " + " | ".join(line) + " |"


def size(key: str, cell: dict[str, Any]) -> str:
    """How large the planted fault was."""
    if key.endswith(":none"):
        return "–"
    return f"{cell['size']}" if cell["enough"] else f"({cell['size']})"


def expected() -> Iterator[str]:
    """What each fault must be found as."""
    yield "## What a fault must be found as"
    yield ""
    told = [(fault.title, fault) for fault in FAULTS.values()]
    told += [(f"{fault.title}, {key}", fault) for key, fault in ON_SERVER.items()]
    for title, fault in told:
        causes = " and ".join(" or ".join(f"`{c}`" for c in sorted(s)) for s in fault.causes)
        besides = ", ".join(f"`{cause}`" for cause in sorted(fault.besides))
        goes = f" With it goes {besides}." if besides else ""
        yield f"- **{title}**: {causes or 'nothing'}. {fault.why}{goes}"


def ranking(cell: dict[str, Any]) -> str:
    """The first causes with what they are worth."""
    lines = cell["ranking"][:3]
    return ", ".join(f"{line['cause']} {us(line['worth_ns'])}" for line in lines)


def interval(found: dict[str, float]) -> str:
    """An estimate with its interval, in µs."""
    return f"{us(found['ns'])} ({us(found['lo'])}–{us(found['hi'])})"


def us(ns: float) -> str:
    """Microseconds, three digits or more."""
    value = ns / 1000
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
