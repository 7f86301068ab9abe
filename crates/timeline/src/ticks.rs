//! Where threads spend their time, by the ticks of the CPUs' timers that met them.

use std::collections::HashMap;

use serde::Serialize;

/// Ticks that are kept, at most: 250 a second of 400 CPUs for 10 s.
const MOST: usize = 1 << 20;

/// A function that ticks met a thread in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Function {
    /// Its name; `None`: not known, as of a process that had ended.
    pub name: Option<String>,
    /// The kernel was at work for it: in a system call, as a rule.
    pub in_kernel: bool,
    /// How many ticks.
    pub ticks: u32,
}

/// One tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tick {
    pub(crate) at: u64,
    pub(crate) process: u32,
    pub(crate) address: u64,
    pub(crate) in_kernel: bool,
}

/// The ticks of all threads, in the order of their time.
#[derive(Debug, Default)]
pub(crate) struct Ticks {
    by_thread: HashMap<u32, Vec<Tick>>,
    kept: usize,
}

impl Ticks {
    pub(crate) fn take(&mut self, tid: u32, tick: Tick) {
        if self.kept < MOST {
            self.kept += 1;
            self.by_thread.entry(tid).or_default().push(tick);
        }
    }

    /// Those of a thread in `from..to`, if that is any time.
    pub(crate) fn of(&self, tid: u32, from: u64, to: u64) -> &[Tick] {
        let all = self.by_thread.get(&tid).map_or(&[][..], Vec::as_slice);
        let place = |at| all.partition_point(|tick| tick.at < at);
        &all[place(from.min(to))..place(to)]
    }
}

/// Counts functions together, the one with the most ticks first.
pub(crate) fn add(all: &mut Vec<Function>, more: &[Function]) {
    for function in more {
        let same = |known: &&mut Function| {
            (&known.name, known.in_kernel) == (&function.name, function.in_kernel)
        };
        match all.iter_mut().find(same) {
            Some(known) => known.ticks += function.ticks,
            None => all.push(function.clone()),
        }
    }
    all.sort_by_key(|function| std::cmp::Reverse(function.ticks));
}

/// The function that most of the ticks met, as the end of a sentence: `, in burn (3 of 4 ticks)`.
#[must_use]
pub(crate) fn words(functions: &[Function]) -> String {
    // Of a function, what it did and what the kernel did for it.
    let of = |name: &str| {
        let same = functions.iter().filter(|f| f.name.as_deref() == Some(name));
        same.fold((0, 0), |(all, kernel), f| {
            (all + f.ticks, kernel + f.ticks * u32::from(f.in_kernel))
        })
    };
    let all: u32 = functions.iter().map(|function| function.ticks).sum();
    let names = functions.iter().filter_map(|f| f.name.as_deref());
    let most = names.map(|name| (of(name), name));
    let Some(((ticks, in_kernel), name)) = most.max_by_key(|((ticks, _), _)| *ticks) else {
        return String::new();
    };
    if ticks * 2 <= all {
        return String::new();
    }
    let kernel = match in_kernel * 2 > ticks {
        true => ", in the kernel",
        false => "",
    };
    let unit = if all == 1 { "tick" } else { "ticks" };
    format!(", in {name}{kernel} ({ticks} of {all} {unit})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: Option<&str>, ticks: u32) -> Function {
        Function {
            name: name.map(str::to_owned),
            in_kernel: false,
            ticks,
        }
    }

    #[test]
    fn functions_of_several_gaps_are_counted_together() {
        let mut all = Vec::new();
        add(&mut all, &[function(Some("parse"), 1)]);
        add(
            &mut all,
            &[function(Some("burn"), 2), function(Some("parse"), 2)],
        );
        assert_eq!(all, [function(Some("parse"), 3), function(Some("burn"), 2)]);
        assert_eq!(words(&all), ", in parse (3 of 5 ticks)");
    }

    #[test]
    fn a_function_that_few_ticks_met_is_not_named() {
        assert_eq!(words(&[]), "");
        let apart = ["a", "b", "c"].map(|name| function(Some(name), 1));
        assert_eq!(words(&apart), "");
        // Nor one beside code without a name that has more.
        assert_eq!(words(&[function(None, 3), function(Some("burn"), 1)]), "");
        assert_eq!(words(&[function(None, 3)]), "");
    }

    #[test]
    fn what_the_kernel_does_for_a_function_is_said() {
        let write = Function {
            in_kernel: true,
            ..function(Some("write"), 1)
        };
        let one = std::slice::from_ref(&write);
        assert_eq!(words(one), ", in write, in the kernel (1 of 1 tick)");
        // What it does itself counts with that.
        let more = [function(Some("write"), 2), write, function(Some("burn"), 1)];
        assert_eq!(words(&more), ", in write (3 of 4 ticks)");
    }

    #[test]
    fn ticks_are_found_by_their_time() {
        let mut ticks = Ticks::default();
        for at in [10, 20, 30] {
            let tick = Tick {
                at,
                process: 1,
                address: at,
                in_kernel: false,
            };
            ticks.take(7, tick);
        }
        let of = |from, to| {
            ticks
                .of(7, from, to)
                .iter()
                .map(|tick| tick.at)
                .collect::<Vec<_>>()
        };
        assert_eq!(of(10, 30), [10, 20]);
        assert_eq!(of(11, 20), [0; 0]);
        assert!(ticks.of(8, 0, 100).is_empty());
        assert!(ticks.of(7, 30, 10).is_empty());
    }
}
