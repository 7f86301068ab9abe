"""The proof's page: its bars, the matrix, every miss with its figures, and all figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness import Bar

from proof.faults import FAULTS, ON_SERVER
from proof.servers import SERVERS

#: What is asked of the whole matrix.
TOP_BAR, HELD_BAR = 0.95, 0.80

Cells = dict[str, dict[str, Any]]


def sections(cells: Cells) -> list[tuple[str, str]]:
    """The page's parts, from the cells by their `server:fault`."""
    parts = {
        "Questions": questions(cells),
        "Matrix": [*matrix(cells), "", *footnotes()],
        "Misses": misses(cells),
        "Figures": figures(cells),
        "What a fault must be found as": expected(),
    }
    return [(heading, "\n".join(lines)) for heading, lines in parts.items()]


def questions(cells: Cells) -> Iterator[str]:
    """What is asked, and how long the cells were measured."""
    yield (
        "Real servers with a fault planted in each: is the fault the top cause of `tailscope "
        "explain`, and does p99 after its removal lie in the 95 % interval that was predicted "
        "from the phases with the fault alone? lab/proof/README.md has how it is done."
    )
    found = sorted({cell["seconds"] for cell in cells.values() if "seconds" in cell})
    if found:
        yield f"Phases of a cell together: {', '.join(f'{one:g}' for one in found)} s."


def summary(cells: Cells) -> str:
    """The line of bench/README.md."""
    planted = [cell for key, cell in measured(cells).items() if not key.endswith(":none")]
    top, held = (sum(bool(cell.get(key)) for cell in planted) for key in ("top", "held"))
    of = len(planted)
    return f"the planted fault is the top cause in {top} of {of} cells, p99 as predicted in {held}"


def measured(cells: Cells) -> Cells:
    """The cells that have a verdict."""
    return {key: cell for key, cell in cells.items() if "error" not in cell}


def bars(cells: Cells) -> list[Bar]:
    """What is asked of the whole matrix, and what was found."""
    judged = measured(cells)
    planted = [cell for key, cell in judged.items() if not key.endswith(":none")]
    calm = [cell for key, cell in judged.items() if key.endswith(":none")]
    large = [cell for cell in planted if cell["enough"]]

    def of_large(key: str) -> str:
        """The same of the faults that were large enough to tell."""
        if len(large) == len(planted):
            return ""
        yes = sum(bool(cell.get(key)) for cell in large)
        return f"where the fault was large enough to tell, {yes} of {len(large)}"

    narrow = sum(cell.get("held_by_estimate", False) for cell in planted)
    alone = f"in the interval of the prediction alone, {narrow} of {len(planted)}"
    predicted = "; ".join(filter(None, (alone, of_large("held"))))
    found = []
    if planted:
        what = "the planted fault is the top cause"
        found.append(bar(what, planted, "top", TOP_BAR, of_large("top")))
    if calm:
        found.append(bar("nothing planted: no cause above 10 % of p99", calm, "top", 1.0))
    if planted:
        what = "p99 after removal is in the predicted interval"
        found.append(bar(what, planted, "held", HELD_BAR, predicted))
    if failed := len(cells) - len(judged):
        found.append(Bar("cells that could not be measured", "0", f"{failed}", False))
    return found


def bar(what: str, cells: list[dict[str, Any]], key: str, least: float, note: str = "") -> Bar:
    """A bar on the share of cells in which something is right."""
    yes = sum(bool(cell.get(key)) for cell in cells)
    share = yes / len(cells)
    asked = "all" if least == 1.0 else f"at least {100 * least:.0f} %"
    found = f"{yes} of {len(cells)} ({100 * share:.0f} %)"
    return Bar(what, asked, found, share >= least, note)


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
