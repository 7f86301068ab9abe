//! Everything that `tailscope locality` found, as it is printed.

mod members;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::profile::demand::{Demands, demands};
use crate::profile::groups::{Group, groups};
use crate::profile::hot::{self, Hot, Sharing, User};
use crate::profile::interval::{Share, draws};
use crate::profile::unseen::{self, Lines};
use crate::profile::{LINE, Profile, Touch};
use crate::program::Function;
use crate::report::members::Members;
use crate::sampler::{Counts, Found, Visits, WatchCounts};

/// Lines in the report, of each kind.
pub const MOST_LINES: usize = 20;
const MOST_FUNCTIONS: usize = 20;
const MOST_THREADS: usize = 64;

/// What was found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The process.
    pub pid: u32,
    /// The phase, if one was named.
    pub phase: Option<String>,
    /// How long it was sampled, in seconds.
    pub seconds: f64,
    /// CPU time between samples of a thread, on average, in ns.
    pub period_ns: u64,
    /// CPU time that the sampler took itself, in seconds.
    pub own_cpu_seconds: f64,
    /// How many samples, and what was lost.
    pub counts: Counts,
    /// What watchpoints did.
    pub watch: WatchCounts,
    /// How often the phase was entered.
    pub visits: Visits,
    /// How far apart two CPUs were; `None` if it was not measured.
    pub distance: Option<Distance>,
    /// What `tailscope locality predict` replays; `None` without a phase, or with too few accesses.
    pub demands: Option<Demands>,
    /// The number of lines that the program uses.
    pub lines: Lines,
    /// The groups of lines.
    pub groups: Vec<Group>,
    /// The functions that access memory, the one with most CPU time first.
    pub functions: Vec<Part>,
    /// The threads.
    pub threads: Vec<Part>,
    /// The hottest lines.
    pub hot: Vec<HotLine>,
    /// The hottest lines that several threads use and at least one writes.
    pub contended: Vec<HotLine>,
    /// `false`: to find members took too long, so that some are not named.
    pub members_complete: bool,
}

/// How far apart two CPUs were.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Distance {
    /// Which.
    pub cpus: [u32; 2],
    /// ns of a cache line from the first to the second, now and then.
    pub line_ns: Vec<f64>,
}

/// A function or a thread.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// A thread's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tid: Option<u32>,
    /// Share of CPU time near accesses.
    pub time: Share,
    /// Lines that samples touched.
    pub lines: u64,
    /// Loads.
    pub reads: u64,
    /// Stores.
    pub writes: u64,
    /// Stores among loads and stores.
    pub updates: Share,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HotLine {
    /// Its address, in hexadecimal.
    pub address: String,
    /// The variable or mapping that has it.
    pub what: String,
    /// Share of CPU time near accesses.
    pub time: Share,
    /// Samples that touched it.
    pub samples: u64,
    /// How threads share it.
    pub sharing: Sharing,
    /// What each thread does there.
    pub users: Vec<LineUser>,
    /// The functions with most accesses.
    pub functions: Vec<String>,
    /// How often a word of it was watched, and how often several threads touched that word.
    pub watched: [u32; 2],
}

/// What a thread does at a line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LineUser {
    /// The thread's id.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// Loads.
    pub reads: u64,
    /// Stores.
    pub writes: u64,
    /// The first byte of the line that it touches, and the first behind the last one.
    pub bytes: [u32; 2],
    /// The members of variables and types that it accesses there, in the order of their bytes, where the
    /// program was built with `-g`.
    pub fields: Vec<LineField>,
}

/// A member of a variable or of a type.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LineField {
    /// `VARIABLE.MEMBER`, or `TYPE.MEMBER` for memory of the heap.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its first byte in the line that the thread accesses, and the first behind the last one.
    pub bytes: [u32; 2],
    /// Accesses.
    pub accesses: u64,
}

/// What a report says about its run.
#[derive(Debug, Clone)]
pub struct About {
    /// The process.
    pub pid: u32,
    /// The phase.
    pub phase: Option<String>,
    /// See [`Report::period_ns`].
    pub period_ns: u64,
    /// See [`Report::own_cpu_seconds`].
    pub own_cpu_seconds: f64,
    /// Whether to find what `tailscope locality predict` needs, which takes a second or more.
    pub with_demands: bool,
    /// See [`Report::distance`].
    pub distance: Option<Distance>,
    /// Seed of the bootstrap.
    pub seed: u64,
}

impl Report {
    /// Makes the report.
    #[must_use]
    pub fn of(found: Found, about: About) -> Self {
        let Found {
            profile,
            mut program,
            counts,
            watch,
            visits,
            elapsed,
        } = found;
        let hot = hot::lines(&profile, MOST_LINES, about.seed);
        let is_contended = |line: &&Hot| line.sharing >= Sharing::True;
        let contended = || hot.iter().filter(is_contended).take(MOST_LINES);
        let hottest = || hot.iter().take(MOST_LINES);
        let printed = hottest().chain(contended()).map(|line| line.line);
        let mut members = Members::of(&profile, &printed.collect());
        let mut printed = |line: &Hot| HotLine {
            address: format!("{:#x}", line.address),
            what: program.describe(line.address + first_byte(line)),
            time: line.time,
            samples: line.samples,
            sharing: line.sharing,
            users: line
                .users
                .iter()
                .map(|user| LineUser {
                    fields: members.of_user(&mut program, line, user),
                    ..user_of(&profile, user)
                })
                .collect(),
            functions: named(program.functions(), &line.functions),
            watched: [line.watched.times, line.watched.by_several],
        };
        // For these members are looked for first.
        let contended = contended().map(&mut printed).collect();
        let hottest = hottest().map(&mut printed).collect();
        let functions = parts(&profile, about.seed, MOST_FUNCTIONS, |touch| touch.function);
        let functions = functions.into_iter().map(|(function, part)| Part {
            name: program.functions().name(function).to_owned(),
            ..part
        });
        let thread_of = |touch: &Touch| profile.samples[touch.sample as usize].thread;
        let threads = parts(&profile, about.seed, MOST_THREADS, thread_of);
        let threads = threads.into_iter().map(|(thread, part)| Part {
            name: profile.threads[usize::from(thread)].name.clone(),
            tid: Some(profile.threads[usize::from(thread)].tid),
            ..part
        });
        let is_wanted = about.phase.is_some() && about.with_demands;
        let demands = is_wanted.then(|| demands(&profile, about.seed)).flatten();
        Self {
            lines: unseen::estimate(hot.iter().map(|line| line.samples)),
            groups: groups(&profile, about.phase.is_some(), about.seed),
            functions: functions.collect(),
            threads: threads.collect(),
            pid: about.pid,
            phase: about.phase,
            seconds: elapsed.as_secs_f64(),
            period_ns: about.period_ns,
            own_cpu_seconds: about.own_cpu_seconds,
            counts,
            watch,
            visits,
            distance: about.distance,
            demands,
            hot: hottest,
            contended,
            members_complete: members.complete,
        }
    }
}

fn named(functions: &crate::program::Functions, of: &[Function]) -> Vec<String> {
    of.iter().map(|f| functions.name(*f).to_owned()).collect()
}

/// The first byte of the line that any thread touches.
fn first_byte(line: &Hot) -> u64 {
    let first = line.users.iter().map(|user| user.bytes().0).min();
    u64::from(first.unwrap_or(0)).min(LINE - 1)
}

fn user_of(profile: &Profile, user: &User) -> LineUser {
    let thread = &profile.threads[usize::from(user.thread)];
    let (first, behind) = user.bytes();
    LineUser {
        tid: thread.tid,
        name: thread.name.clone(),
        reads: user.reads,
        writes: user.writes,
        bytes: [first, behind],
        fields: Vec::new(),
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    time: f64,
    reads: f64,
    writes: f64,
}

impl Sums {
    fn add(&mut self, touch: &Touch, weight: f64, count: f64, is_after: &[bool]) {
        self.time += count * weight;
        if touch.is_before && is_after[touch.line as usize] {
            return;
        }
        self.reads += count * touch.reads() as f64;
        self.writes += count * touch.writes() as f64;
    }

    fn updates(&self) -> f64 {
        self.writes / (self.reads + self.writes)
    }
}

/// The parts of the profile by a key of its touches, the one with most time first.
fn parts<K: Copy + Eq + std::hash::Hash + Ord>(
    profile: &Profile,
    seed: u64,
    most: usize,
    key: impl Fn(&Touch) -> K,
) -> Vec<(K, Part)> {
    let is_after = profile.is_after_by_line();
    let mut sums: HashMap<K, (Sums, std::collections::HashSet<u32>)> = HashMap::new();
    for touch in &profile.touches {
        let (sum, lines) = sums.entry(key(touch)).or_default();
        sum.add(touch, profile.weight(touch), 1.0, &is_after);
        lines.insert(touch.line);
    }
    let mut sorted: Vec<_> = sums.into_iter().collect();
    sorted.sort_by(|(a, (x, _)), (b, (y, _))| y.time.total_cmp(&x.time).then(a.cmp(b)));
    sorted.truncate(most);
    let places: HashMap<K, usize> = sorted
        .iter()
        .enumerate()
        .map(|(i, (k, _))| (*k, i))
        .collect();
    let all = profile.resolved() as f64;
    let mut drawn = vec![(Vec::new(), Vec::new()); sorted.len()];
    for counts in draws(profile.samples.len(), seed) {
        let mut sums = vec![Sums::default(); sorted.len()];
        let resolved = profile
            .samples
            .iter()
            .zip(&counts)
            .filter(|(s, _)| s.touches > 0);
        let all: f64 = resolved.map(|(_, count)| f64::from(*count)).sum();
        for touch in &profile.touches {
            if let Some(place) = places.get(&key(touch)) {
                let count = f64::from(counts[touch.sample as usize]);
                sums[*place].add(touch, profile.weight(touch), count, &is_after);
            }
        }
        for (sum, (times, updates)) in sums.iter().zip(&mut drawn) {
            times.push(sum.time / all);
            updates.push(sum.updates());
        }
    }
    let parts = sorted.into_iter().zip(drawn);
    parts
        .map(|((key, (sum, lines)), (times, updates))| {
            let part = Part {
                name: String::new(),
                tid: None,
                time: Share::of(sum.time / all, &times),
                lines: lines.len() as u64,
                reads: sum.reads as u64,
                writes: sum.writes as u64,
                updates: Share::of(sum.updates(), &updates),
            };
            (key, part)
        })
        .collect()
}
