//! The path is what the plan says: each line is visited and written as often as planned.

use std::collections::BTreeMap;

use proptest::prelude::*;

use fastrand::Rng;

use super::*;
use crate::chase::plan::{Group, Spread, Use};

/// Follows one loop by the elements alone. For each phase, region and line: accesses and writes.
fn followed(path: &Path) -> BTreeMap<(usize, bool, usize), (usize, usize)> {
    let mut seen = BTreeMap::new();
    let mut place = path.start(0, 0.0).0;
    let mut ended = 0;
    for _ in 0..path.elements() {
        let index = (place & INDEX) as usize;
        let is_own = place & OWN != 0;
        let phase = ended % path.phases();
        let line: &mut (usize, usize) = seen.entry((phase, is_own, index / SLOTS)).or_default();
        line.0 += 1;
        line.1 += usize::from(place & WRITE != 0);
        let word = match is_own {
            true => path.own[index],
            false => path.shared.words()[index].load(Ordering::Relaxed),
        };
        place = word & !END;
        ended += usize::from(word & END != 0);
        if word & END != 0 && ended < path.phases() {
            assert_eq!(Place(place), path.start(ended, 0.0));
        }
    }
    assert_eq!(
        (Place(place), ended % path.phases()),
        (path.start(0, 0.0), 0)
    );
    assert_eq!(ended, path.visits());
    seen
}

/// The planned accesses to the lines of a group's use, sorted, and the planned writes.
fn check(plan: &Plan, path: &Path) {
    let seen = followed(path);
    let mut first = BTreeMap::from([(true, 0), (false, 0)]);
    let mut lines_of_plan = 0;
    for group in &plan.groups {
        let is_own = group.scope == Scope::Session;
        let start = first[&is_own];
        *first.get_mut(&is_own).expect("both regions") += group.lines;
        for used in &group.uses {
            let lines = (start..start + group.lines).map(|line| {
                let found = seen.get(&(used.phase, is_own, line));
                *found.expect("each line is visited")
            });
            let (mut counts, writes): (Vec<_>, Vec<_>) = lines.unzip();
            counts.sort_unstable_by(|a, b| b.cmp(a));
            let mut planned = plan.counts(group, used);
            planned.sort_unstable_by(|a, b| b.cmp(a));
            let all = planned.iter().sum::<usize>() as f64;
            assert_eq!(counts, planned);
            assert_eq!(
                writes.iter().sum::<usize>(),
                (used.updates * all).round() as usize
            );
            lines_of_plan += group.lines;
        }
    }
    assert_eq!(seen.len(), lines_of_plan, "no other line is visited");
}

fn group() -> impl Strategy<Value = Group> {
    let used = |phase| {
        (0.0..=1.0, 0.1..10.0).prop_map(move |(updates, accesses)| Use {
            phase,
            updates,
            accesses,
        })
    };
    let phases = prop_oneof![
        Just(vec![0]),
        Just(vec![1]),
        Just(vec![0, 2]),
        Just(vec![0, 1, 2])
    ];
    let uses = phases.prop_flat_map(move |phases| phases.into_iter().map(used).collect::<Vec<_>>());
    (any::<bool>(), 1usize..60, uses).prop_map(|(own, lines, uses)| Group {
        scope: if own { Scope::Session } else { Scope::Global },
        lines,
        uses,
    })
}

proptest! {
    #[test]
    fn each_line_is_visited_and_written_as_planned(
        mut groups in prop::collection::vec(group(), 1..5),
        even: bool,
        parameter in 1usize..=SLOTS,
        visits in 1usize..5,
        seed: u64,
    ) {
        // Each phase has at least one line.
        let everywhere = |phase| Use { phase, updates: 0.5, accesses: 1.0 };
        let uses = [0, 1, 2].map(everywhere).to_vec();
        groups.push(Group { scope: Scope::Global, lines: 3, uses });
        let spread = match even {
            true => Spread::Even(parameter),
            false => Spread::Zipf(parameter as f64 / 8.0),
        };
        let plan = Plan { phases: 3, groups, spread, visits, compute_ns: Vec::new() };
        let mut rng = Rng::with_seed(seed);
        let path = Path::new(&plan, Pages::Small, &mut rng).expect("a path");
        check(&plan, &path);
    }
}

#[test]
fn a_walk_counts_what_it_accesses_and_changes_no_element() {
    let plan = Plan::even(2, 300 * 64, 0.25, Spread::Zipf(1.0));
    let path = Path::new(&plan, Pages::Huge, &mut Rng::with_seed(3)).expect("a path");
    let before = followed(&path);
    let own = path.own_lines(Pages::Small).expect("memory");
    let done = AtomicU64::new(0);
    let mut place = path.start(0, 0.0);
    for phase in [1, 0, 1, 0] {
        place = path.walk(place, &own, &done);
        assert_eq!(place, path.start(phase, 0.0));
    }
    assert_eq!(done.load(Ordering::Relaxed), 2 * path.elements());
    assert_eq!(followed(&path), before);
    let writes = before
        .values()
        .map(|(_, writes)| *writes as u64)
        .sum::<u64>();
    assert_eq!((path.writes(), before.len()), (writes, 300));
}

#[test]
fn counts_follow_zipf_down_to_one_and_up_to_what_fits() {
    let plan = Plan::even(1, 100 * 64, 0.0, Spread::Zipf(1.0));
    let group = &plan.groups[0];
    let counts = plan.counts(group, &group.uses[0]);
    assert_eq!(counts[..8], [16, 16, 16, 16, 16, 16, 14, 12]);
    assert!(counts[50..].iter().all(|count| *count == 1));
}
