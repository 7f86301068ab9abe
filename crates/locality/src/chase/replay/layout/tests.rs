use proptest::prelude::*;

use super::*;
use crate::profile::demand;

fn used(accesses: f64, updates: f64) -> Option<demand::Use> {
    Some(demand::Use { accesses, updates })
}

fn lines(session: SessionScope, lines: f64, uses: [Option<demand::Use>; 2]) -> Lines {
    Lines {
        session,
        lines,
        uses,
    }
}

fn plan_of(groups: Vec<Lines>, threads: f64, accesses: [f64; 2]) -> Plan {
    let demand = Demand {
        threads,
        in_phase: 0.5,
        waiting: [1.0; 2],
        groups,
    };
    Layout {
        hit_ns: 2.0,
        round_ns: 1e4,
    }
    .plan(&demand, accesses, [0.0, 100.0])
}

/// Accesses of a loop in each phase.
fn accesses(plan: &Plan) -> [usize; 2] {
    [0, 1].map(|phase| {
        let of = |group: &Group| {
            let uses = group.uses.iter().filter(|used| used.phase == phase);
            uses.flat_map(|used| plan.counts(group, used))
                .sum::<usize>()
        };
        plan.groups.iter().map(of).sum()
    })
}

#[test]
fn a_visit_has_the_accesses_that_were_demanded() {
    // 1,000 lines of which a visit of the phase accesses each once, and 100 with 4.3 accesses each.
    let groups = vec![
        lines(SessionScope::Global, 1000.0, [used(0.001, 0.5), None]),
        lines(SessionScope::Global, 100.0, [None, used(0.01, 0.0)]),
    ];
    let plan = plan_of(groups, 10.0, [1000.0, 430.0]);
    assert_eq!((plan.phases, plan.visits), (2, 1));
    assert_eq!(accesses(&plan), [1000, 430]);
    assert_eq!(plan.bytes(10), 1100 * 64);
    assert_eq!(plan.compute_ns, [0.0, 100.0]);
    assert_eq!(plan.groups[0].uses[0].updates, 0.5);
}

#[test]
fn visits_that_access_a_part_of_the_lines_are_many_in_a_loop() {
    let groups = vec![
        lines(SessionScope::Global, 1000.0, [used(0.001, 0.0), None]),
        lines(SessionScope::Local, 200.0, [None, used(0.005, 0.0)]),
    ];
    let plan = plan_of(groups, 10.0, [50.0, 40.0]);
    assert_eq!(plan.visits, 20);
    let [phase, rest] = accesses(&plan);
    assert_eq!(phase, 1000);
    // Ten threads have twenty lines each, and all of the 40 accesses are to those of one.
    assert_eq!(plan.groups[1].lines, 20);
    assert_eq!(
        (rest, plan.compute_ns[1]),
        (20 * SLOTS, 100.0 + (40.0 - 16.0) * 2.0)
    );
}

#[test]
fn accesses_that_do_not_fit_into_a_line_take_their_time() {
    let groups = vec![
        lines(SessionScope::Global, 1.0, [used(0.5, 0.0), None]),
        lines(SessionScope::Global, 500.0, [used(0.001, 0.0), None]),
        lines(SessionScope::Global, 10.0, [None, used(0.1, 0.0)]),
    ];
    let plan = plan_of(groups, 1.0, [1000.0, 10.0]);
    assert_eq!(plan.visits, 1);
    assert_eq!(accesses(&plan), [516, 10]);
    // 484 accesses of 2 ns.
    assert_eq!(plan.compute_ns, [968.0, 100.0]);
}

#[test]
fn both_phases_of_shared_lines_have_what_was_demanded() {
    let both = |number, a, b| lines(SessionScope::Global, number, [used(a, 0.0), used(b, 0.5)]);
    // 2.5 and 1.5 accesses of each line, and one in ten of the other lines has one of the rest.
    let plan = plan_of(
        vec![both(100.0, 0.005, 0.003), both(100.0, 0.005, 0.0002)],
        1.0,
        [500.0; 2],
    );
    assert_eq!(plan.visits, 1);
    let [phase, rest] = accesses(&plan);
    // Half a one of the larger count is a whole one.
    assert_eq!((phase, rest), (600, 150 + 10));
}

#[test]
fn lines_that_are_too_few_for_each_thread_take_their_time() {
    let groups = vec![
        lines(SessionScope::Global, 100.0, [used(0.01, 0.0), None]),
        lines(SessionScope::Local, 3.0, [None, used(0.1, 0.0)]),
    ];
    let plan = plan_of(groups, 10.0, [100.0, 10.0]);
    // 0.3 lines with 10 accesses in a visit, and the line that no phase is without.
    assert_eq!(
        (accesses(&plan), plan.compute_ns[1]),
        ([100, 1], 100.0 + 3.0 * 2.0)
    );
}

proptest! {
    #[test]
    fn any_demand_is_a_path(
        demanded in prop::collection::vec(
            (any::<bool>(), 0.0..5_000.0, 0.0..1.0, 0.0..1.0, 0.0..1.0, 0u8..3), 0..12),
        threads in 1.0..200.0,
        visits in (1.0..50_000.0, 1.0..50_000.0),
    ) {
        let groups = demanded.into_iter().map(|(is_local, number, a, b, updates, which)| {
            let session = if is_local { SessionScope::Local } else { SessionScope::Global };
            let uses = [used(a, updates), used(b, updates)];
            let keeps = [which != 1, which != 2];
            lines(session, number, [0, 1].map(|p| uses[p].filter(|_| keeps[p])))
        });
        let plan = plan_of(groups.collect(), threads, [visits.0, visits.1]);
        let elements: usize = accesses(&plan).iter().sum();
        prop_assert!(accesses(&plan).iter().all(|accesses| *accesses > 0));
        prop_assert!(elements <= 12 * 5_000 * SLOTS + 2);
        prop_assert!(plan.compute_ns.iter().all(|ns| ns.is_finite() && *ns >= 0.0));
    }
}
