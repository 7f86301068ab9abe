"""Hardware counters that a ledger may have: a nullable column each, named as `perf list` names the
event, in lower case and with `_` for all but letters and digits.

A counter is no part of a span's time, so nothing is saved in ns by taking it away; VarMRI's impact
value is what it gets, under the rules that these tables feed.

VarMRI's groups and its rule of parent and child are the paper's; which events are in them here is
ours. The paper's own Table 1 and Table 2 are not reproduced: the Intel names are those that Intel
publishes for its Core processors (Skylake to Cascade Lake), chosen to cover the same three groups,
AMD's those of Zen 2 and 3, Arm's those of the architecture (PMUv3). A parent is an event whose
occurrences include the child's by definition. Counters that nobody lists are shown too; no rule
speaks of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from tailscope.cause import MEANING


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


#: perf's own names for any CPU. Branch mispredictions rank with cache and TLB misses: instructions
#: cause them, cycles pay.
GENERIC = {
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

INTEL = (
    family(
        Group.INST,
        {
            "": "inst_retired_any uops_issued_any",
            "inst_retired_any": "br_inst_retired_all_branches mem_inst_retired_all_loads "
            "mem_inst_retired_all_stores fp_arith_inst_retired_scalar fp_arith_inst_retired_vector",
            "uops_issued_any": "uops_executed_thread uops_retired_retire_slots",
            "br_inst_retired_all_branches": "br_inst_retired_conditional "
            "br_inst_retired_near_call br_inst_retired_near_return br_inst_retired_near_taken",
            "mem_inst_retired_all_loads": "mem_inst_retired_lock_loads "
            "mem_inst_retired_split_loads",
            "mem_inst_retired_all_stores": "mem_inst_retired_split_stores",
        },
    )
    | family(
        Group.CACHE,
        {
            "": "l2_rqsts_references icache_64b_iftag_hit longest_lat_cache_reference "
            "machine_clears_count baclears_any other_assists_any",
            "br_inst_retired_all_branches": "br_misp_retired_all_branches",
            "br_misp_retired_all_branches": "br_misp_retired_conditional br_misp_retired_near_call",
            "mem_inst_retired_all_loads": "mem_load_retired_l1_hit mem_load_retired_l1_miss "
            "mem_inst_retired_stlb_miss_loads",
            "mem_inst_retired_all_stores": "mem_inst_retired_stlb_miss_stores",
            "mem_load_retired_l1_miss": "mem_load_retired_fb_hit mem_load_retired_l2_hit "
            "mem_load_retired_l2_miss",
            "mem_load_retired_l2_miss": "mem_load_retired_l3_hit mem_load_retired_l3_miss",
            "mem_load_retired_l3_hit": "mem_load_l3_hit_retired_xsnp_hit "
            "mem_load_l3_hit_retired_xsnp_hitm mem_load_l3_hit_retired_xsnp_miss "
            "mem_load_l3_hit_retired_xsnp_none",
            "mem_load_retired_l3_miss": "mem_load_l3_miss_retired_local_dram "
            "mem_load_l3_miss_retired_remote_dram",
            "l2_rqsts_references": "l2_rqsts_miss l2_rqsts_all_demand_data_rd l2_rqsts_all_rfo "
            "l2_rqsts_all_code_rd l2_rqsts_all_pf",
            "l2_rqsts_all_demand_data_rd": "l2_rqsts_demand_data_rd_miss",
            "l2_rqsts_all_rfo": "l2_rqsts_rfo_miss",
            "l2_rqsts_all_code_rd": "l2_rqsts_code_rd_miss",
            "l2_rqsts_all_pf": "l2_rqsts_pf_miss",
            "longest_lat_cache_reference": "longest_lat_cache_miss",
            "machine_clears_count": "machine_clears_memory_ordering machine_clears_smc",
            "icache_64b_iftag_hit": "icache_64b_iftag_miss",
            "icache_64b_iftag_miss": "itlb_misses_miss_causes_a_walk",
            "mem_inst_retired_stlb_miss_loads": "dtlb_load_misses_miss_causes_a_walk",
            "mem_inst_retired_stlb_miss_stores": "dtlb_store_misses_miss_causes_a_walk",
        },
    )
    | family(
        Group.CYCLE,
        {
            "": "cpu_clk_unhalted_thread",
            "cpu_clk_unhalted_thread": "cpu_clk_unhalted_ref_tsc "
            "cpu_clk_unhalted_one_thread_active cycle_activity_stalls_total "
            "resource_stalls_any idq_uops_not_delivered_core "
            "int_misc_recovery_cycles int_misc_clear_resteer_cycles ild_stall_lcp "
            "arith_divider_active dtlb_load_misses_walk_active dtlb_store_misses_walk_active "
            "itlb_misses_walk_active icache_16b_ifdata_stall icache_64b_iftag_stall "
            "dsb2mite_switches_penalty_cycles l1d_pend_miss_pending_cycles",
            "cycle_activity_stalls_total": "cycle_activity_stalls_mem_any "
            "exe_activity_bound_on_stores",
            "cycle_activity_stalls_mem_any": "cycle_activity_stalls_l1d_miss",
            "cycle_activity_stalls_l1d_miss": "cycle_activity_stalls_l2_miss",
            "cycle_activity_stalls_l2_miss": "cycle_activity_stalls_l3_miss",
            "resource_stalls_any": "resource_stalls_sb",
        },
    )
)

AMD = (
    family(
        Group.INST,
        {
            "": "ex_ret_instr",
            "ex_ret_instr": "ex_ret_brn ls_dispatch_ld_dispatch ls_dispatch_store_dispatch",
        },
    )
    | family(
        Group.CACHE,
        {
            "": "l2_request_g1_all_no_prefetch bp_l1_tlb_miss_l2_tlb_hit ic_fw32",
            "ex_ret_brn": "ex_ret_brn_misp",
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
            "inst_spec": "ld_spec st_spec dp_spec ase_spec vfp_spec",
        },
    )
    | family(
        Group.CACHE,
        {
            "": "mem_access l1i_cache br_pred l1i_tlb",
            "br_retired": "br_mis_pred_retired",
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

#: The length of a cycle in ps, from running time and cycles (`counting`).
CYCLE_TIME = "cycle_time_ps"
#: The names under which cycles are counted, and the kernel's part of them.
CYCLES = ("cycles", "cpu_clk_unhalted_thread", "cpu_clk_unhalted_thread_p", "ls_not_halted_cyc", "cpu_cycles")  # fmt: skip
KERNEL_CYCLES = {"cycles": "cycles_k", "cycles_u": "cycles_k"}

COUNTERS = GENERIC | INTEL | AMD | ARM


def is_counter(name: str) -> bool:
    """Whether a name is a counter's and not a cause's."""
    return name not in MEANING


def group_of(name: str) -> Group | None:
    """The group of a counter; None where it is not listed, or is a cause."""
    return COUNTERS[name].group if name in COUNTERS else None


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Counters without doubles: those that are listed first, in the list's order."""
    wanted = dict.fromkeys(names)
    listed = tuple(name for name in COUNTERS if name in wanted)
    return listed + tuple(name for name in wanted if name not in COUNTERS)
