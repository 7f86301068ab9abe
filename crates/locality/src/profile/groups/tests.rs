use fastrand::Rng;

use super::*;
use crate::profile::ThreadName;
use crate::walk::{Access, Kind};

/// A program with known groups: by class, its number of lines and share of writes.
struct Planted {
    lines: [u64; 6],
    updates: [f64; 6],
    threads: u16,
}

impl Planted {
    fn sample(&self, samples: usize, seed: u64) -> Profile {
        let mut rng = Rng::with_seed(seed);
        let mut profile = Profile::default();
        let name = |tid| ThreadName {
            tid,
            name: String::new(),
        };
        profile.threads = (0..u32::from(self.threads)).map(name).collect();
        let all: u64 = self.lines.iter().sum();
        for _ in 0..samples {
            let thread = rng.u16(..self.threads);
            profile.begin(thread, 0, false);
            for _ in 0..4 {
                // Lines are equally hot, so the class has the share of its lines.
                let mut line = rng.u64(..all);
                let class = self.lines.iter().position(|lines| {
                    let is_here = line < *lines;
                    line = line.wrapping_sub(if is_here { 0 } else { *lines });
                    is_here
                });
                let class = class.expect("within all");
                let (phase, session) = CLASSES[class];
                // Of the session-local lines, each session has an equal part.
                if session == SessionScope::Local {
                    line = line / u64::from(self.threads) * u64::from(self.threads)
                        + u64::from(thread);
                }
                let in_phase = match phase {
                    PhaseScope::Phase => true,
                    PhaseScope::Rest => false,
                    PhaseScope::Global => rng.bool(),
                };
                let is_write = rng.f64() < self.updates[class];
                let access = Access {
                    ip: 0,
                    address: ((class as u64) << 40) + line * 64,
                    size: 8,
                    kind: if is_write { Kind::Write } else { Kind::Read },
                    step: 0,
                };
                profile.touch(&access, 0, in_phase);
            }
        }
        profile
    }
}

const PLANTED: Planted = Planted {
    lines: [200, 120, 400, 200, 40, 240],
    updates: [0.25, 0.0, 0.5, 0.1, 1.0, 0.75],
    threads: 4,
};

#[test]
fn planted_groups_are_found_within_two_points_and_updates_within_three() {
    let profile = PLANTED.sample(8_000, 5);
    let found = groups(&profile, true, 1);
    let all: u64 = PLANTED.lines.iter().sum();
    for (class, group) in found.iter().enumerate() {
        let lines = PLANTED.lines[class] as f64 / all as f64;
        assert!(
            (group.lines.value - lines).abs() < 0.02,
            "{group:?}, {lines}"
        );
        assert!(
            (group.time.value - lines).abs() < 0.02,
            "{group:?}, {lines}"
        );
        let updates = group.updates.expect("there were some").value;
        assert!((updates - PLANTED.updates[class]).abs() < 0.03, "{group:?}");
    }
}

#[test]
fn few_samples_do_not_make_lines_local() {
    // Two samples a line: Accessprof's rule calls a line local unless both differ.
    let profile = PLANTED.sample(600, 9);
    let found = groups(&profile, true, 1);
    let session_global = |of: &dyn Fn(&Group) -> f64| -> f64 {
        let global = found.iter().filter(|g| g.session == SessionScope::Global);
        global.map(of).sum()
    };
    let truth = (120.0 + 200.0 + 240.0) / 1200.0;
    let ours = (session_global(&|g| g.lines.value) - truth).abs();
    let visits = Visits::of(&profile, true);
    let is_global = |line: &&[Visit]| line.iter().any(|v| v.thread != line[0].thread);
    let global = visits.lines().filter(is_global).count() as f64;
    let rule = (global / visits.lines().count() as f64 - truth).abs();
    assert!(
        ours <= rule / 2.0,
        "error {ours}, by Accessprof's rule {rule}"
    );
}

#[test]
fn intervals_of_time_and_updates_cover_the_truth() {
    let all: u64 = PLANTED.lines.iter().sum();
    let (mut covered, mut figures) = (0, 0);
    for seed in 0..20 {
        for (class, group) in groups(&PLANTED.sample(3_000, seed), true, seed)
            .iter()
            .enumerate()
        {
            let time = PLANTED.lines[class] as f64 / all as f64;
            let updates = group.updates.expect("there were some");
            for (share, truth) in [(group.time, time), (updates, PLANTED.updates[class])] {
                let (low, high) = (share.low.expect("many"), share.high.expect("many"));
                figures += 1;
                covered += usize::from((low..=high).contains(&truth));
            }
        }
    }
    assert!(covered * 10 >= figures * 8, "{covered} of {figures}");
}

#[test]
fn without_a_phase_there_are_two_groups_and_without_samples_none() {
    let mut profile = PLANTED.sample(500, 2);
    let found = groups(&profile, false, 1);
    assert_eq!(found.len(), 2);
    let sum: f64 = found.iter().map(|group| group.lines.value).sum();
    assert!((sum - 1.0).abs() < 1e-9);
    profile.touches.clear();
    assert!(groups(&profile, false, 1).is_empty());
}
