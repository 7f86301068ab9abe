use super::*;
use crate::profile::ThreadName;
use crate::walk::{Access, Kind};

/// Lines of the phase that two threads use, lines of each thread outside of it, and lines of both.
const PHASE: u64 = 600;
const REST: u64 = 200;
const BOTH: u64 = 100;

/// Equally many samples in the phase and outside. Of the accesses in it, a third go to lines of both.
fn planted(samples: usize, seed: u64) -> Profile {
    let mut rng = Rng::with_seed(seed);
    let mut profile = Profile::default();
    let name = |tid| ThreadName {
        tid,
        name: String::new(),
    };
    profile.threads = (0..2).map(name).collect();
    for _ in 0..samples {
        let (thread, in_phase) = (rng.u16(..2), rng.bool());
        profile.begin(thread, 0, in_phase);
        profile.came_from(rng.f64() < if in_phase { 0.8 } else { 0.1 });
        for _ in 0..2 {
            let (address, writes) = match (rng.u32(..3), in_phase) {
                (0, _) => ((1 << 40) + rng.u64(..BOTH), 0.0),
                (_, true) => (rng.u64(..PHASE), 0.5),
                (_, false) => {
                    let own = rng.u64(..REST / 2) * 2 + u64::from(thread);
                    ((1 << 50) + own, 0.2)
                }
            };
            // Each store comes with a load.
            let kind = match rng.f64() < writes {
                true => Kind::Update,
                false => Kind::Read,
            };
            let access = Access {
                ip: 0,
                address: address * 64,
                size: 8,
                kind,
                step: 0,
            };
            profile.touch(&access, 0, in_phase);
        }
    }
    profile
}

/// Lines, accesses of a visit and mean updates of the groups with these uses, by phase.
fn of(demand: &Demand, uses: [bool; 2], session: SessionScope) -> (f64, [f64; 2], [f64; 2]) {
    let is_wanted =
        |lines: &&Lines| lines.session == session && lines.uses.map(|u| u.is_some()) == uses;
    let mut sums = (0.0, [0.0; 2], [0.0; 2]);
    for lines in demand.groups.iter().filter(is_wanted) {
        sums.0 += lines.lines;
        for (place, used) in lines.uses.iter().enumerate() {
            let accesses = used.map_or(0.0, |used| used.accesses * lines.lines);
            sums.1[place] += accesses;
            sums.2[place] += accesses * used.map_or(0.0, |used| used.updates);
        }
    }
    for place in 0..2 {
        sums.2[place] /= sums.1[place].max(f64::MIN_POSITIVE);
    }
    sums
}

#[test]
fn a_round_demands_the_lines_accesses_and_writes_that_were_planted() {
    let profile = planted(6_000, 3);
    let demands = demands(&profile, 1).expect("enough samples");
    let found = &demands.found;
    assert!((found.in_phase - 0.5).abs() < 0.03);
    assert!((found.waiting[0] - 0.8).abs() < 0.04 && (found.waiting[1] - 0.1).abs() < 0.04);
    let (lines, accesses, updates) = of(found, [true, false], SessionScope::Global);
    assert!((lines / PHASE as f64 - 1.0).abs() < 0.05, "{lines}");
    assert!((accesses[0] - 2.0 / 3.0).abs() < 0.04, "{accesses:?}");
    assert!((updates[0] - 0.5).abs() < 0.05, "{updates:?}");
    let (lines, accesses, updates) = of(found, [false, true], SessionScope::Local);
    assert!((lines / REST as f64 - 1.0).abs() < 0.05, "{lines}");
    assert!((accesses[1] - 2.0 / 3.0).abs() < 0.04, "{accesses:?}");
    assert!((updates[1] - 0.2).abs() < 0.05, "{updates:?}");
    let (lines, accesses, updates) = of(found, [true, true], SessionScope::Global);
    assert!((lines / BOTH as f64 - 1.0).abs() < 0.1, "{lines}");
    assert!(
        accesses
            .iter()
            .all(|share| (share - 1.0 / 3.0).abs() < 0.04),
        "{accesses:?}"
    );
    assert!(updates.iter().all(|share| *share < 0.01), "{updates:?}");
}

#[test]
fn variants_differ_and_lie_around_what_was_found() {
    let demands = demands(&planted(600, 4), 1).expect("enough samples");
    let size = |demand: &Demand| demand.groups.iter().map(|lines| lines.lines).sum::<f64>();
    let found = size(&demands.found);
    let sizes: Vec<f64> = demands.variants.iter().map(size).collect();
    assert_eq!(sizes.len(), VARIANTS);
    assert!(sizes.iter().any(|size| *size < found) && sizes.iter().any(|size| *size > found));
    assert!(
        sizes.iter().all(|size| (size / found - 1.0).abs() < 0.5),
        "{found}, {sizes:?}"
    );
}

#[test]
fn too_few_accesses_or_none_in_the_phase_say_nothing() {
    assert_eq!(demands(&planted(50, 1), 1), None);
    let mut profile = planted(1_000, 1);
    profile
        .touches
        .iter_mut()
        .for_each(|touch| touch.in_phase = false);
    assert_eq!(demands(&profile, 1), None);
    assert_eq!(demands(&Profile::default(), 1), None);
}
