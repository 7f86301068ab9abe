"""Hardware counters that a ledger may have: a nullable column each, named as `perf list` names the
event, in lower case and with `_` for `-`.

A counter is no part of a span's time, so nothing is saved in ns by taking it away; VarMRI's impact
value is what it gets, under the rules that these tables feed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Group(IntEnum):
    """What a counter is about. More instructions make more misses, and both make more cycles, so a
    higher group explains a lower one and never the other way round."""

    CYCLE = 1
    CACHE = 2
    INST = 3


@dataclass(frozen=True)
class Counter:
    """A counter's group, and the event that it is a part of."""

    group: Group
    parent: str | None = None


#: Branch mispredictions rank with cache and TLB misses: instructions cause them, cycles pay.
COUNTERS = {
    "instructions": Counter(Group.INST),
    "branches": Counter(Group.INST, "instructions"),
    "branch_misses": Counter(Group.CACHE, "branches"),
    "cache_references": Counter(Group.CACHE),
    "cache_misses": Counter(Group.CACHE, "cache_references"),
    "l1_dcache_loads": Counter(Group.CACHE),
    "l1_dcache_load_misses": Counter(Group.CACHE, "l1_dcache_loads"),
    "l1_icache_load_misses": Counter(Group.CACHE),
    "llc_loads": Counter(Group.CACHE, "l1_dcache_load_misses"),
    "llc_load_misses": Counter(Group.CACHE, "llc_loads"),
    "dtlb_loads": Counter(Group.CACHE, "l1_dcache_loads"),
    "dtlb_load_misses": Counter(Group.CACHE, "dtlb_loads"),
    "itlb_load_misses": Counter(Group.CACHE),
    "cycles": Counter(Group.CYCLE),
    "ref_cycles": Counter(Group.CYCLE, "cycles"),
    "bus_cycles": Counter(Group.CYCLE, "cycles"),
    "stalled_cycles_frontend": Counter(Group.CYCLE, "cycles"),
    "stalled_cycles_backend": Counter(Group.CYCLE, "cycles"),
}
