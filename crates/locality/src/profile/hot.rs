//! Hot lines, and lines that several threads write.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use super::interval::{Share, draws};
use super::{Profile, Thread, Watched};
use crate::program::Function;

/// Functions that are named of a line.
const MOST_FUNCTIONS: usize = 3;
/// With fewer accesses of each of two threads, a common byte may have been missed.
const ENOUGH: u64 = 5;

/// How threads share a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// One thread was seen.
    Private,
    /// Several threads, and none wrote.
    ReadOnly,
    /// Several threads use the same bytes, and one of them writes.
    True,
    /// Several threads use different bytes, and one of them writes: the line moves between their
    /// CPUs although they share no data.
    False,
    /// Several threads, one writes, and too few samples to say more.
    Unclear,
}

/// What one thread did at a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct User {
    /// The thread's number.
    pub thread: Thread,
    /// Loads.
    pub reads: u64,
    /// Stores.
    pub writes: u64,
    /// The bytes that it loaded, one bit each.
    #[serde(skip)]
    pub read_bytes: u64,
    /// The bytes that it stored.
    #[serde(skip)]
    pub written_bytes: u64,
}

impl User {
    /// The first byte that the thread touched, and the first behind the last one.
    #[must_use]
    pub fn bytes(&self) -> (u32, u32) {
        let all = self.read_bytes | self.written_bytes;
        (all.trailing_zeros(), 64 - all.leading_zeros())
    }
}

/// Bytes of a line that an instruction of a thread accesses at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The first byte in the line.
    pub offset: u8,
    /// The number of bytes.
    pub size: u8,
    /// See [`Touch::before`](super::Touch::before).
    pub before: u16,
    /// How often.
    pub accesses: u64,
    /// By which instruction.
    pub ip: u64,
}

/// A line.
#[derive(Debug, Clone, PartialEq)]
pub struct Hot {
    /// Its number.
    pub line: u32,
    /// Its address.
    pub address: u64,
    /// Share of CPU time near accesses.
    pub time: Share,
    /// Samples that touched it.
    pub samples: u64,
    /// Each thread, the one with most accesses first.
    pub users: Vec<User>,
    /// The functions with most accesses.
    pub functions: Vec<Function>,
    /// How threads share it.
    pub sharing: Sharing,
    /// What watchpoints showed.
    pub watched: Watched,
}

#[derive(Debug, Default)]
struct Tally {
    time: f64,
    samples: u64,
    last: Option<u32>,
    users: HashMap<Thread, User>,
    functions: HashMap<Function, u64>,
}

/// Every line, the hottest first. The first `intervals` lines have intervals.
#[must_use]
pub fn lines(profile: &Profile, intervals: usize, seed: u64) -> Vec<Hot> {
    let mut tallies: HashMap<u32, Tally> = HashMap::new();
    for touch in &profile.touches {
        let tally = tallies.entry(touch.line).or_default();
        tally.time += profile.weight(touch);
        if tally.last != Some(touch.sample) {
            tally.last = Some(touch.sample);
            tally.samples += 1;
        }
        *tally.functions.entry(touch.function).or_default() += 1;
        let thread = profile.samples[touch.sample as usize].thread;
        let user = tally.users.entry(thread).or_insert(User {
            thread,
            reads: 0,
            writes: 0,
            read_bytes: 0,
            written_bytes: 0,
        });
        user.reads += touch.reads();
        user.writes += touch.writes();
        user.read_bytes |= touch.bytes() * touch.reads();
        user.written_bytes |= touch.bytes() * touch.writes();
    }
    let all: f64 = profile.resolved() as f64;
    let mut lines: Vec<Hot> = tallies
        .into_iter()
        .map(|(line, tally)| hot(profile, line, tally, all))
        .collect();
    lines.sort_by(|a, b| {
        let by_time = b.time.value.total_cmp(&a.time.value);
        by_time.then(a.address.cmp(&b.address))
    });
    let first = intervals.min(lines.len());
    add_intervals(profile, &mut lines[..first], seed);
    lines
}

fn hot(profile: &Profile, line: u32, tally: Tally, all: f64) -> Hot {
    let mut users: Vec<User> = tally.users.into_values().collect();
    users.sort_by_key(|user| (std::cmp::Reverse(user.reads + user.writes), user.thread));
    let mut functions: Vec<(Function, u64)> = tally.functions.into_iter().collect();
    functions.sort_by_key(|(function, count)| (std::cmp::Reverse(*count), *function));
    let functions = functions.into_iter().map(|(function, _)| function);
    let watched = profile.watched.get(&line).copied().unwrap_or_default();
    Hot {
        line,
        address: profile.lines[line as usize],
        time: Share {
            value: tally.time / all,
            low: None,
            high: None,
        },
        samples: tally.samples,
        sharing: sharing(&users, &watched),
        functions: functions.take(MOST_FUNCTIONS).collect(),
        users,
        watched,
    }
}

/// How threads share a line. Watchpoints show that a word is shared where samples missed it.
fn sharing(users: &[User], watched: &Watched) -> Sharing {
    let writes: u64 = users.iter().map(|user| user.writes).sum();
    if watched.shared > 0 {
        return Sharing::True;
    }
    if users.len() < 2 {
        return Sharing::Private;
    }
    if writes == 0 {
        return Sharing::ReadOnly;
    }
    let clash = |a: &User, b: &User| {
        a.written_bytes & (b.read_bytes | b.written_bytes) != 0
            || a.read_bytes & b.written_bytes != 0
    };
    let pairs = || {
        let all = users.iter().enumerate();
        all.flat_map(|(i, a)| users[..i].iter().map(move |b| (a, b)))
    };
    if pairs().any(|(a, b)| clash(a, b)) {
        return Sharing::True;
    }
    let is_clear = |user: &User| user.reads + user.writes >= ENOUGH;
    let is_false = |(a, b): (&User, &User)| is_clear(a) && is_clear(b) && a.writes + b.writes > 0;
    match pairs().any(is_false) {
        true => Sharing::False,
        false => Sharing::Unclear,
    }
}

/// What threads access of these lines, by line and thread, in the order of the bytes.
#[must_use]
pub fn pieces(profile: &Profile, lines: &HashSet<u32>) -> HashMap<(u32, Thread), Vec<Piece>> {
    let mut pieces: HashMap<(u32, Thread), Vec<Piece>> = HashMap::new();
    for touch in profile.touches.iter().filter(|t| lines.contains(&t.line)) {
        let thread = profile.samples[touch.sample as usize].thread;
        let of = pieces.entry((touch.line, thread)).or_default();
        let key = (touch.offset, touch.size, touch.ip, touch.before);
        let place = of.binary_search_by_key(&key, |p| (p.offset, p.size, p.ip, p.before));
        match place {
            Ok(known) => of[known].accesses += 1,
            Err(new) => of.insert(
                new,
                Piece {
                    offset: touch.offset,
                    size: touch.size,
                    before: touch.before,
                    accesses: 1,
                    ip: touch.ip,
                },
            ),
        }
    }
    pieces
}

fn add_intervals(profile: &Profile, lines: &mut [Hot], seed: u64) {
    let places: HashMap<u32, usize> = lines.iter().enumerate().map(|(i, l)| (l.line, i)).collect();
    let mut drawn = vec![Vec::new(); lines.len()];
    let touches = profile.touches.iter();
    let touches: Vec<_> = touches
        .filter_map(|touch| Some((places.get(&touch.line)?, touch)))
        .collect();
    for counts in draws(profile.samples.len(), seed) {
        let mut sums = vec![0.0; lines.len()];
        let resolved = profile
            .samples
            .iter()
            .zip(&counts)
            .filter(|(s, _)| s.touches > 0);
        let all: f64 = resolved.map(|(_, count)| f64::from(*count)).sum();
        for (place, touch) in &touches {
            let count = f64::from(counts[touch.sample as usize]);
            sums[**place] += count * profile.weight(touch);
        }
        for (sum, drawn) in sums.iter().zip(&mut drawn) {
            drawn.push(sum / all);
        }
    }
    for (line, drawn) in lines.iter_mut().zip(&drawn) {
        line.time = Share::of(line.time.value, drawn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ThreadName;
    use crate::walk::{Access, Kind};

    fn profile(touches: &[(Thread, u64, Kind)]) -> Profile {
        let mut profile = Profile::default();
        for (thread, address, kind) in touches {
            profile.begin(*thread, 0, false);
            let access = Access {
                ip: 0,
                address: *address,
                size: 8,
                kind: *kind,
                step: 0,
            };
            profile.touch(&access, 7, false);
        }
        let name = |tid| ThreadName {
            tid,
            name: String::new(),
        };
        profile.threads = (0..4).map(name).collect();
        profile
    }

    fn sharing_of(touches: &[(Thread, u64, Kind)]) -> Sharing {
        lines(&profile(touches), 1, 1)[0].sharing
    }

    #[test]
    fn sharing_is_true_at_the_same_bytes_and_false_at_others() {
        use Kind::{Read, Update, Write};
        let five = |thread, address, kind| [(thread, address, kind); 5];
        let both = |a: [_; 5], b: [_; 5]| [a, b].concat();
        let cases = [
            (five(0, 0x1000, Write).to_vec(), Sharing::Private),
            (
                both(five(0, 0x1000, Read), five(1, 0x1000, Read)),
                Sharing::ReadOnly,
            ),
            (
                both(five(0, 0x1000, Read), five(1, 0x1000, Update)),
                Sharing::True,
            ),
            (
                both(five(0, 0x1004, Write), five(1, 0x1000, Read)),
                Sharing::True,
            ),
            (
                both(five(0, 0x1000, Write), five(1, 0x1008, Read)),
                Sharing::False,
            ),
            (
                vec![(0, 0x1000, Write), (1, 0x1008, Read)],
                Sharing::Unclear,
            ),
            // One thread was sampled often; the other could have been anywhere.
            (
                [&five(0, 0x1000, Write)[..], &[(1, 0x1008, Write)]].concat(),
                Sharing::Unclear,
            ),
        ];
        for (touches, wanted) in cases {
            assert_eq!(sharing_of(&touches), wanted, "{touches:x?}");
        }
    }

    #[test]
    fn a_watched_word_that_two_threads_touch_is_shared() {
        let mut profile = profile(&[(0, 0x1000, Kind::Write)]);
        profile.watched(
            0x1000,
            Watched {
                times: 1,
                by_several: 1,
                shared: 1,
                by_none: 0,
            },
        );
        assert_eq!(lines(&profile, 1, 1)[0].sharing, Sharing::True);
    }

    #[test]
    fn the_hottest_line_comes_first_with_its_interval_and_users() {
        let mut touches = vec![(0, 0x1000, Kind::Read); 300];
        touches.extend([(1, 0x1010, Kind::Write); 100]);
        touches.extend([(0, 0x2000, Kind::Read); 100]);
        let found = lines(&profile(&touches), 1, 1);
        assert_eq!((found.len(), found[0].address), (2, 0x1000));
        let share = found[0].time;
        assert!((share.value - 0.8).abs() < 1e-9);
        assert!(share.low.expect("many") < 0.8 && share.high.expect("many") >= 0.8);
        assert_eq!(found[0].users[1].bytes(), (16, 24));
        assert_eq!((found[0].functions[0], found[1].time.low), (7, None));
    }
}
