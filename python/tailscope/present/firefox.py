"""Samples and slow requests as a file for the Firefox Profiler (profiler.firefox.com).

The file is a profile in the "processed" format, version 70. The Profiler's sources document it:
`src/types/profile.ts` and `docs-developer/CHANGELOG-formats.md`. Times there are ms from the
profile's start. A sample weighs the time that it stands for.

The outermost frame of a stack is the cause. It has the cause's category, which the frames that it
called inherit. Each slow request is an interval marker on its thread, with the time of each cause.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tailscope import __version__
from tailscope.engines.measure import Worst
from tailscope.escaping import escaped_in_json
from tailscope.ledger.causes import MEANING, RUNNING
from tailscope.ledger.stacks import Frame
from tailscope.present.frame_tables import FrameTables, Numbered
from tailscope.present.output import write
from tailscope.present.thread_samples import Thread, ThreadSamples, Timeline
from tailscope.statistics.blamed_function import ON_CPU

#: The versions of the format, and of the one that Firefox itself writes.
PROCESSED, GECKO = 70, 36
#: A ms in ns.
MS = 1_000_000
#: Threads that are shown at first: those with the most time.
VISIBLE = 20
#: Causes of a thread that has a CPU.
HAS_CPU = ON_CPU | {"fault"}
#: `ResourceType.Library`, and the phase of a marker with a start and an end.
LIBRARY, INTERVAL = 1, 1
#: Samples that are not of any cause: a profile has to have this category.
OTHER = {"name": "Other", "color": "grey", "subcategories": ["Other"]}
#: Colours of causes; the others have OTHER_COLOR.
COLORS = {
    RUNNING: "green",
    "fault": "magenta",
    "lock": "red",
    "io": "brown",
    "network": "blue",
    "downstream": "lightblue",
    "sleep": "purple",
    **dict.fromkeys(("runqueue", "preempted", "throttled", "queue"), "orange"),
    **dict.fromkeys(("irq", "softirq_net", "softirq_timer", "softirq_other"), "yellow"),
    "reclaim": "lightred",
}
OTHER_COLOR = "darkgrey"
MARKER = "request"


def save(shown: Timeline, file: str) -> None:
    """Write the file."""
    text = json.dumps(profile(shown), ensure_ascii=False, separators=(",", ":"))
    write(file, escaped_in_json(text))


def profile(shown: Timeline) -> dict[str, Any]:
    """The document."""
    first = shown.extent_ns[0] // MS * MS
    categories = {cause: place for place, cause in enumerate(shown.causes, start=1)}
    tables = Tables(categories)
    stacks = [tables.stack(Frame(cause, "", 0), *chain) for cause, chain in shown.stacks]
    threads = [
        thread_table(thread, shown, first, stacks) | {"markers": markers(its, shown, first, tables)}
        for thread, its in shown.threads.items()
    ]
    return {
        "meta": meta(shown, first),
        "libs": tables.libs(str(shown.machine.get("arch") or "")),
        "shared": tables.shared(),
        "threads": threads,
    }


def meta(shown: Timeline, first_ns: int) -> dict[str, Any]:
    """What the Profiler has to know, and what it shows as the profile's information."""
    times = [sum(its.ns) for its in shown.threads.values()]
    busiest = sorted(range(len(times)), key=lambda place: -times[place])[:VISIBLE]
    machine = {key: str(value) for key, value in shown.machine.items()}
    categories = [
        {"name": cause, "color": COLORS.get(cause, OTHER_COLOR), "subcategories": ["Other"]}
        for cause in shown.causes
    ]
    return {
        "version": GECKO,
        "preprocessedProfileVersion": PROCESSED,
        "product": shown.title,
        "importedFrom": f"Tailscope {__version__}",
        "interval": shown.period_ns / MS,
        "startTime": first_ns // MS,
        "profilingStartTime": 0,
        "profilingEndTime": (shown.extent_ns[1] - first_ns) / MS,
        "processType": 0,
        "stackwalk": 1,
        "debug": False,
        "categories": [OTHER, *categories],
        "markerSchema": [marker_schema(shown.causes)],
        "oscpu": " ".join(filter(None, (machine.get("kernel"), machine.get("arch")))),
        "CPUName": machine.get("model", ""),
        "symbolicated": True,
        "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns"},
        "initialVisibleThreads": sorted(busiest),
        "initialSelectedThreads": busiest[:1],
        "usesOnlyOneStackType": True,
        "sourceCodeIsNotOnSearchfox": True,
        "extra": [
            {
                "label": "Recording",
                "entries": [
                    {"label": "Explained", "format": "string", "value": shown.title},
                    *(
                        {"label": "Left out", "format": "string", "value": note}
                        for note in shown.notes
                    ),
                ],
            }
        ],
    }


def marker_schema(causes: Iterable[str]) -> dict[str, Any]:
    """How a request is shown."""
    times = [
        {"key": cause, "label": label(cause), "format": "duration"} for cause in sorted(causes)
    ]
    blamed = [
        {"key": f"{cause}_by", "label": f"{cause}, most by", "format": "string"}
        for cause in sorted(causes)
    ]
    ids = [{"key": key, "label": key, "format": "string"} for key in ("id", "trace_id")]
    return {
        "name": MARKER,
        "tooltipLabel": "{marker.name}",
        "chartLabel": "{marker.name}",
        "tableLabel": "{marker.name}, most of it {marker.data.most}",
        "display": ["marker-chart", "marker-table", "timeline-overview"],
        "description": "A slow request, with the time of each cause.",
        "fields": [
            {"key": "most", "label": "most of it", "format": "string"},
            *ids,
            *times,
            *blamed,
        ],
    }


def label(cause: str) -> str:
    """`lock (waiting for a lock)`."""
    return f"{cause} ({MEANING[cause]})" if cause in MEANING else cause


def thread_table(
    thread: Thread, shown: Timeline, first_ns: int, stacks: list[int]
) -> dict[str, Any]:
    """A thread with its samples; `stacks` are the numbers of those of the timeline."""
    its = shown.threads[thread]
    process = str(thread.pid) if len(shown.hosts) == 1 else f"{thread.pid} on {thread.host}"
    return {
        "name": f"thread {thread.tid}",
        "processName": f"process {process}",
        "isMainThread": thread.pid == thread.tid,
        "pid": process,
        "tid": thread.tid,
        "processType": "default",
        "processStartupTime": 0,
        "processShutdownTime": None,
        "registerTime": 0,
        "unregisterTime": None,
        "pausedRanges": [],
        "showMarkersInTimeline": True,
        "samples": {
            "length": len(its.stack),
            "time": [(at - first_ns) / MS for at in its.time_ns],
            "stack": [stacks[place] for place in its.stack],
            "weight": [ns / MS for ns in its.ns],
            "weightType": "tracing-ms",
            "threadCPUDelta": [
                ns if shown.stacks[place][0] in HAS_CPU else 0
                for place, ns in zip(its.stack, its.ns, strict=True)
            ],
        },
    }


def markers(its: ThreadSamples, shown: Timeline, first_ns: int, tables: Tables) -> dict[str, Any]:
    """A thread's requests, one after the other."""
    data = [payload(request) for request in its.requests]
    starts = [request.start_ns - first_ns for request in its.requests]
    ends = [start + request.wall_ns for start, request in zip(starts, its.requests, strict=True)]
    return {
        "length": len(data),
        "name": [tables.strings[shown.span]] * len(data),
        "startTime": [start / MS for start in starts],
        "endTime": [end / MS for end in ends],
        "phase": [INTERVAL] * len(data),
        "category": [tables.categories.get(one["most"], 0) for one in data],
        "data": data,
    }


def payload(request: Worst) -> dict[str, Any]:
    """A request's causes in ms, who is blamed for them, and its ids."""
    times = {cause: ns / MS for cause, ns in request.causes.items() if ns}
    ids = {"id": request.identity.get("id"), "trace_id": request.trace_id}
    return {
        "type": MARKER,
        "most": max(times, key=lambda cause: times[cause], default=""),
        **times,
        **{f"{cause}_by": who for cause, who in request.culprits.items() if cause in times},
        **{key: str(value) for key, value in ids.items() if value is not None},
    }


class Tables:
    """What the threads share. `categories`: the numbers of the causes' categories."""

    def __init__(self, categories: dict[str, int]) -> None:
        self.categories = categories
        self.frames = FrameTables()
        self.strings: Numbered[str] = Numbered()
        #: By the number of the caller's stack (None: no caller), and that of the frame.
        self.stacks: Numbered[tuple[int | None, int]] = Numbered()

    def stack(self, *frames: Frame) -> int:
        """The number of a stack of some frames, the outermost first."""
        caller = None
        for frame in frames:
            caller = self.stacks[caller, self.frames.number(frame)]
        assert caller is not None, "a stack has a frame"
        return caller

    def shared(self) -> dict[str, Any]:
        """The tables; to be called when all stacks and strings are known."""
        tables = {
            "stackTable": self.stack_table(),
            "frameTable": self.frame_table(),
            "funcTable": self.function_table(),
            "resourceTable": self.resource_table(),
            "nativeSymbols": columns(0, "libIndex", "address", "name", "functionSize"),
            "sources": columns(
                0, "id", "filename", "startLine", "startColumn", "sourceMapURL", "content"
            ),
            "sourceLocationTable": columns(0, "source", "line", "column"),
        }
        return tables | {"stringArray": list(self.strings)}

    def stack_table(self) -> dict[str, Any]:
        """Each stack as a frame, and how many places before it its caller is; 0: it has none."""
        offsets = [
            0 if caller is None else place - caller for place, (caller, _) in enumerate(self.stacks)
        ]
        return {
            "length": len(self.stacks),
            "frame": [frame for _, frame in self.stacks],
            "prefixOffset": offsets,
        }

    def frame_table(self) -> dict[str, Any]:
        """The frames. Only a cause's frame has a category: what it called inherits it."""
        frames, tables = list(self.frames.frames), self.frames
        categories = [None if frame.module else self.categories.get(frame.name) for frame in frames]
        count = len(frames)
        return {
            **columns(count, "nativeSymbol", "line", "column", "originalLocation"),
            "address": [frame.address if frame.module else -1 for frame in frames],
            "lib": [tables.modules[frame.module] if frame.module else -1 for frame in frames],
            "inlineDepth": [0] * count,
            "category": categories,
            "subcategory": [None if category is None else 0 for category in categories],
            "func": [tables.functions[frame.name, frame.module] for frame in frames],
            "innerWindowID": [0] * count,
        }

    def function_table(self) -> dict[str, Any]:
        """The functions, and the file that each one is in."""
        functions, modules = list(self.frames.functions), self.frames.modules
        count = len(functions)
        return {
            **columns(count, "source", "lineNumber", "columnNumber", "originalLocation"),
            "name": [self.strings[name] for name, _ in functions],
            "isJS": [False] * count,
            "relevantForJS": [False] * count,
            "resource": [modules[module] if module else -1 for _, module in functions],
        }

    def resource_table(self) -> dict[str, Any]:
        """The files."""
        modules = list(self.frames.modules)
        return {
            **columns(len(modules), "host"),
            "name": [self.strings[Path(module).name or module] for module in modules],
            "type": [LIBRARY] * len(modules),
        }

    def libs(self, arch: str) -> list[dict[str, Any]]:
        """The files as libraries, in the order of the resources; no symbols are looked for."""
        return [
            {
                "arch": arch,
                "name": Path(module).name or module,
                "path": module,
                "debugName": Path(module).name or module,
                "debugPath": module,
                "breakpadId": "",
                "codeId": None,
            }
            for module in self.frames.modules
        ]


def columns(count: int, *names: str) -> dict[str, Any]:
    """A table of some columns without values."""
    return {"length": count, **{name: [None] * count for name in names}}
