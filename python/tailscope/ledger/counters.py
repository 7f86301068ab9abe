"""Hardware counters that a ledger may have: a nullable column each, named as `perf list` names the
event, in lower case and with `_` for all but letters and digits.

A counter is no part of a span's time, so nothing is saved in ns by taking it away; VarMRI's impact
value is what it gets, under the rules that these tables feed.

VarMRI's groups and its pairs of parent and child are the paper's Tables 1 and 2, in which the names
are Intel's for its Core processors (Skylake to Cascade Lake). For perf's generic names, AMD's (Zen
2 and 3) and Arm's (PMUv3) the same holds by what they count. A parent is an event whose occurrences
include the child's by definition, so a parent's parent is one too. Counters that nobody lists are
shown too; no rule speaks of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from tailscope.ledger.causes import MEANING


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


def family(group: Group, children: dict[str, str]) -> dict[str, Counter]:
    """Events of one group: a parent (empty: none) → the events that are parts of it."""
    return {
        child: Counter(group, parent or None)
        for parent, names in children.items()
        for child in names.split()
    }


#: perf's own names for any CPU. Branch mispredictions are counted in instructions, as in Table 1.
#: `_u` and `_k` are a recording's own split into user space and kernel (`instructions:k`).
GENERIC = {
    "instructions": Counter(Group.INST),
    "instructions_u": Counter(Group.INST, "instructions"),
    "instructions_k": Counter(Group.INST),
    "branches": Counter(Group.INST, "instructions"),
    "branch_misses": Counter(Group.INST, "branches"),
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
    "cycles_u": Counter(Group.CYCLE, "cycles"),
    "cycles_k": Counter(Group.CYCLE),
    "ref_cycles": Counter(Group.CYCLE, "cycles"),
    "bus_cycles": Counter(Group.CYCLE, "cycles"),
    "stalled_cycles_frontend": Counter(Group.CYCLE, "cycles"),
    "stalled_cycles_backend": Counter(Group.CYCLE, "cycles"),
}

#: The paper's Table 1, whole but for its OTHER (hardware interrupts, which the ledger has as a
#: cause). It names `inst_retired.any_p` and `cpu_clk_unhalted.thread_p`; their fixed-counter twins
#: are added.
TABLE_1 = {
    Group.CACHE: """
        itlb_itlb_flush tlb_flush_dtlb_thread mem_inst_retired_split_loads
        mem_inst_retired_split_stores mem_load_retired_l1_hit mem_load_retired_l2_hit
        mem_load_retired_l3_hit mem_load_retired_l1_miss mem_load_retired_l2_miss
        mem_load_retired_l3_miss l2_trans_l2_wb l2_lines_in_all longest_lat_cache_reference
        longest_lat_cache_miss l1d_pend_miss_pending dtlb_load_misses_walk_completed
        dtlb_store_misses_miss_causes_a_walk dtlb_store_misses_walk_completed
        dtlb_store_misses_stlb_hit l1d_replacement dtlb_load_misses_stlb_hit icache_64b_iftag_hit
        icache_64b_iftag_miss itlb_misses_miss_causes_a_walk itlb_misses_walk_completed
        itlb_misses_stlb_hit mem_inst_retired_stlb_miss_loads mem_inst_retired_stlb_miss_stores
        l2_rqsts_code_rd_miss
    """,
    Group.CYCLE: """
        fp_assist_any cpu_clk_unhalted_thread_p cpu_clk_unhalted_thread_p_any
        cpu_clk_thread_unhalted_ref_xclk cpu_clk_thread_unhalted_ref_xclk_any
        cpu_clk_thread_unhalted_one_thread_active l1d_pend_miss_pending_cycles
        l1d_pend_miss_pending_cycles_any dtlb_store_misses_walk_pending
        dtlb_store_misses_walk_active ept_walk_pending dtlb_load_misses_walk_pending
        dtlb_load_misses_walk_active lock_cycles_cache_lock_duration icache_64b_ifdata_stall
        itlb_misses_walk_pending ild_stall_lcp resource_stalls_any resource_stalls_sb
        cycle_activity_cycles_l2_miss cycle_activity_cycles_l3_miss cycle_activity_stalls_total
        cycle_activity_stalls_l2_miss cycle_activity_stalls_l3_miss cycle_activity_cycles_l1d_miss
        cycle_activity_stalls_l1d_miss cycle_activity_cycles_mem_any cycle_activity_stalls_mem_any
    """,
    Group.INST: """
        inst_retired_any_p br_inst_retired_all_branches br_inst_retired_conditional
        br_inst_retired_near_call br_inst_retired_near_return br_inst_retired_not_taken
        br_inst_retired_near_taken br_inst_retired_far_branch br_misp_retired_all_branches
        br_misp_retired_conditional br_misp_retired_near_taken fp_arith_inst_retired_scalar_double
        fp_arith_inst_retired_scalar_single fp_arith_inst_retired_128b_packed_double
        fp_arith_inst_retired_128b_packed_single fp_arith_inst_retired_256b_packed_double
        fp_arith_inst_retired_256b_packed_single mem_inst_retired_lock_loads
        mem_inst_retired_all_loads mem_inst_retired_all_stores
    """,
}

#: The paper's Table 2: parent → children. The totals, which it leaves out, are in `TOTALS`.
TABLE_2 = {
    "cycle_activity_stalls_total": """
        cycle_activity_stalls_l2_miss cycle_activity_stalls_l3_miss cycle_activity_stalls_l1d_miss
        cycle_activity_stalls_mem_any
    """,
    "inst_retired_any_p": "br_inst_retired_all_branches",
    "br_inst_retired_all_branches": """
        br_inst_retired_not_taken br_inst_retired_far_branch br_misp_retired_all_branches
        br_misp_retired_conditional br_misp_retired_near_taken
    """,
    "mem_inst_retired_all_loads": "mem_inst_retired_lock_loads",
    "cpu_clk_unhalted_thread_p_any": "cpu_clk_unhalted_thread_p",
    "cpu_clk_thread_unhalted_ref_xclk_any": """
        cpu_clk_thread_unhalted_ref_xclk cpu_clk_thread_unhalted_one_thread_active
    """,
    "l1d_pend_miss_pending_cycles_any": "l1d_pend_miss_pending_cycles",
}

#: Total instructions and total cycles: all events of a group are their children (the paper, below
#: Table 2). A recording has one of each, under its CPU's name, or perf's own.
TOTALS = {
    Group.INST: ("instructions", "inst_retired_any", "inst_retired_any_p", "ex_ret_instr",
                 "inst_retired"),
    Group.CYCLE: ("cycles", "cpu_clk_unhalted_thread", "cpu_clk_unhalted_thread_p",
                  "ls_not_halted_cyc", "cpu_cycles"),
}  # fmt: skip

#: Events of the same CPUs that Table 1 does not have, in the group that its headings give them.
#: Those that count micro-ops are in none, as in the paper.
MORE_INTEL = (
    family(
        Group.INST,
        {
            "": "inst_retired_any",
            "inst_retired_any": "fp_arith_inst_retired_scalar fp_arith_inst_retired_vector",
            "br_misp_retired_all_branches": "br_misp_retired_near_call",
        },
    )
    | family(
        Group.CACHE,
        {
            "": "l2_rqsts_references",
            "mem_load_retired_l1_miss": "mem_load_retired_fb_hit",
            "mem_load_retired_l3_hit": "mem_load_l3_hit_retired_xsnp_hit "
            "mem_load_l3_hit_retired_xsnp_hitm mem_load_l3_hit_retired_xsnp_miss "
            "mem_load_l3_hit_retired_xsnp_none",
            "mem_load_retired_l3_miss": "mem_load_l3_miss_retired_local_dram "
            "mem_load_l3_miss_retired_remote_dram",
            "l2_rqsts_references": "l2_rqsts_miss l2_rqsts_all_demand_data_rd l2_rqsts_all_rfo "
            "l2_rqsts_all_code_rd l2_rqsts_all_pf",
            "l2_rqsts_all_demand_data_rd": "l2_rqsts_demand_data_rd_miss",
            "l2_rqsts_all_rfo": "l2_rqsts_rfo_miss",
            "l2_rqsts_all_pf": "l2_rqsts_pf_miss",
            "mem_inst_retired_stlb_miss_loads": "dtlb_load_misses_miss_causes_a_walk",
        },
    )
    | family(
        Group.CYCLE,
        {
            "": "cpu_clk_unhalted_thread",
            "cpu_clk_unhalted_thread": "cpu_clk_unhalted_ref_tsc "
            "cpu_clk_unhalted_one_thread_active int_misc_recovery_cycles "
            "int_misc_clear_resteer_cycles arith_divider_active itlb_misses_walk_active "
            "icache_16b_ifdata_stall icache_64b_iftag_stall dsb2mite_switches_penalty_cycles",
            "cycle_activity_stalls_total": "exe_activity_bound_on_stores",
        },
    )
)
#: Pairs that Table 2 does not have, and that follow from the events' definitions: child → parent.
MORE_PARENTS = {
    "br_inst_retired_conditional": "br_inst_retired_all_branches",
    "br_inst_retired_near_call": "br_inst_retired_all_branches",
    "br_inst_retired_near_return": "br_inst_retired_all_branches",
    "br_inst_retired_near_taken": "br_inst_retired_all_branches",
    "mem_inst_retired_split_loads": "mem_inst_retired_all_loads",
    "mem_inst_retired_split_stores": "mem_inst_retired_all_stores",
    "mem_inst_retired_stlb_miss_loads": "mem_inst_retired_all_loads",
    "mem_inst_retired_stlb_miss_stores": "mem_inst_retired_all_stores",
    "mem_load_retired_l1_hit": "mem_inst_retired_all_loads",
    "mem_load_retired_l1_miss": "mem_inst_retired_all_loads",
    "mem_load_retired_l2_hit": "mem_load_retired_l1_miss",
    "mem_load_retired_l2_miss": "mem_load_retired_l1_miss",
    "mem_load_retired_l3_hit": "mem_load_retired_l2_miss",
    "mem_load_retired_l3_miss": "mem_load_retired_l2_miss",
    "longest_lat_cache_miss": "longest_lat_cache_reference",
    "l2_rqsts_code_rd_miss": "l2_rqsts_all_code_rd",
    "icache_64b_iftag_miss": "icache_64b_iftag_hit",
    "itlb_misses_miss_causes_a_walk": "icache_64b_iftag_miss",
    "dtlb_store_misses_miss_causes_a_walk": "mem_inst_retired_stlb_miss_stores",
    "resource_stalls_sb": "resource_stalls_any",
}


def table() -> dict[str, Counter]:
    """Table 1 with the parents of Table 2 and ours."""
    parents = MORE_PARENTS | {
        child: parent for parent, names in TABLE_2.items() for child in names.split()
    }
    return {
        name: Counter(group, parents.get(name))
        for group, names in TABLE_1.items()
        for name in names.split()
    }


INTEL = table() | MORE_INTEL

AMD = (
    family(
        Group.INST,
        {
            "": "ex_ret_instr",
            "ex_ret_instr": "ex_ret_brn ls_dispatch_ld_dispatch ls_dispatch_store_dispatch",
            "ex_ret_brn": "ex_ret_brn_misp",
        },
    )
    | family(
        Group.CACHE,
        {
            "": "l2_request_g1_all_no_prefetch bp_l1_tlb_miss_l2_tlb_hit ic_fw32",
            "ls_dispatch_ld_dispatch": "ls_l1_d_tlb_miss_all",
            "l2_request_g1_all_no_prefetch": "l2_cache_req_stat_ls_rd_blk_c",
            "ic_fw32": "ic_fw32_miss",
        },
    )
    | family(
        Group.CYCLE,
        {
            "": "ls_not_halted_cyc",
            "ls_not_halted_cyc": "de_dis_dispatch_token_stalls1_load_queue_token_stall "
            "de_dis_dispatch_token_stalls1_store_queue_token_stall ex_div_busy",
        },
    )
)

ARM = (
    family(
        Group.INST,
        {
            "": "inst_retired inst_spec",
            "inst_retired": "br_retired ld_retired st_retired",
            "br_retired": "br_mis_pred_retired",
            "inst_spec": "ld_spec st_spec dp_spec ase_spec vfp_spec",
        },
    )
    | family(
        Group.CACHE,
        {
            "": "mem_access l1i_cache br_pred l1i_tlb",
            "br_pred": "br_mis_pred",
            "mem_access": "l1d_cache l1d_tlb",
            "l1d_cache": "l1d_cache_refill",
            "l1d_cache_refill": "l2d_cache",
            "l2d_cache": "l2d_cache_refill",
            "l2d_cache_refill": "ll_cache_rd",
            "ll_cache_rd": "ll_cache_miss_rd",
            "l1i_cache": "l1i_cache_refill",
            "l1d_tlb": "l1d_tlb_refill",
            "l1d_tlb_refill": "dtlb_walk",
            "l1i_tlb": "l1i_tlb_refill",
            "l1i_tlb_refill": "itlb_walk",
        },
    )
    | family(
        Group.CYCLE,
        {
            "": "cpu_cycles",
            "cpu_cycles": "cnt_cycles stall",
            "stall": "stall_frontend stall_backend",
            "stall_backend": "stall_backend_mem",
        },
    )
)

#: The length of a cycle in ps, from running time and cycles (`statistics.counter_impact`).
CYCLE_TIME = "cycle_time_ps"
#: The names under which cycles are counted in user space, and the kernel's beside them.
CYCLES = (*TOTALS[Group.CYCLE], "cycles_u")
KERNEL_CYCLES = {"cycles": "cycles_k", "cycles_u": "cycles_k"}

COUNTERS = GENERIC | INTEL | AMD | ARM


def is_counter(name: str) -> bool:
    """Whether a name is a counter's and not a cause's."""
    return name not in MEANING


def group_of(name: str) -> Group | None:
    """The group of a counter; None where it is not listed, or is a cause."""
    return COUNTERS[name].group if name in COUNTERS else None


def parents_of(name: str) -> tuple[str, ...]:
    """The events that include a counter's, the nearest first: parents, theirs, and the totals."""
    found: dict[str, None] = {}
    counter = COUNTERS.get(name)
    group = counter.group if counter else None
    while counter and counter.parent and counter.parent not in found:
        found[counter.parent] = None
        counter = COUNTERS.get(counter.parent)
    totals = TOTALS.get(group, ()) if group else ()
    if name not in totals and not name.endswith("_k"):
        found |= dict.fromkeys(totals)
    return tuple(found)


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Counters without doubles: those that are listed first, in the list's order."""
    wanted = dict.fromkeys(names)
    listed = tuple(name for name in COUNTERS if name in wanted)
    return listed + tuple(name for name in wanted if name not in COUNTERS)
