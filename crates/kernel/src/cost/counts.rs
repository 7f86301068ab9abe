//! How often a hook is hit, and by whom.

use std::path::Path;

use libbpf_rs::{Link, MapCore, MapFlags, Object};

use super::hooks::{attach_probe, load, why};
use crate::Mechanisms;
use crate::load_error::{LoadError, kernel};
use crate::object::{map_of, program};
use crate::open::check;
use crate::uprobes::{Uprobes, choose};

/// What was counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted {
    /// Hits of the processes.
    pub ours: u64,
    /// Hits of everybody.
    pub all: u64,
}

/// Programs that count. They are attached one after another: the counts are of all that were.
#[derive(Debug)]
pub struct Counts {
    object: Object,
    uprobes: Uprobes,
    links: Vec<Link>,
}

/// Tracepoints that can be counted at a time (`bpf/cost.bpf.c`).
pub const COUNTED_TOGETHER: usize = 32;

impl Counts {
    /// Loads them, for these processes (numbers of the initial namespace).
    ///
    /// # Errors
    /// If this user may not, or the kernel refuses them.
    pub fn load(pids: &[u32]) -> Result<Self, LoadError> {
        check()?;
        let uprobes = choose(&mut Mechanisms::default());
        let mut prefixes = vec!["count_raw", "count_syscall"];
        if uprobes != Uprobes::Nothing {
            prefixes.push("count_probe");
        }
        let object = load(&prefixes, uprobes).map_err(kernel("load the programs that count"))?;
        let counted = map_of(&object, "counted");
        for pid in pids {
            counted
                .update(&pid.to_ne_bytes(), &1u32.to_ne_bytes(), MapFlags::ANY)
                .map_err(kernel("say which processes are counted"))?;
        }
        Ok(Self {
            object,
            uprobes,
            links: Vec::new(),
        })
    }

    /// Counts system calls from now on, by their numbers too.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn system_calls(&mut self) -> Result<(), String> {
        let program = program(&mut self.object, "count_syscall");
        let link = program
            .attach_raw_tracepoint("sys_enter")
            .map_err(|e| why(&e))?;
        self.links = vec![link];
        Ok(())
    }

    /// Counts hits of these tracepoints from now on, each by its place in the list. What can't be
    /// counted of them, and why, in words.
    ///
    /// # Panics
    /// If there are more than [`COUNTED_TOGETHER`].
    pub fn tracepoints(&mut self, names: &[&str]) -> Vec<Option<String>> {
        assert!(
            names.len() <= COUNTED_TOGETHER,
            "{} are too many",
            names.len()
        );
        self.links.clear();
        let mut attach = |(place, name): (usize, &&str)| {
            let program = program(&mut self.object, &format!("count_raw_{place}"));
            match program.attach_raw_tracepoint(name) {
                Ok(link) => {
                    self.links.push(link);
                    None
                }
                Err(e) => Some(why(&e)),
            }
        };
        names.iter().enumerate().map(&mut attach).collect()
    }

    /// Counts hits of an instruction in a file from now on. `semaphore`: where a USDT probe has its
    /// own in the file, or 0.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn probe(&mut self, file: &Path, offset: u64, semaphore: u64) -> Result<(), String> {
        if self.uprobes == Uprobes::Nothing {
            return Err("uprobes refused by this kernel".into());
        }
        let program = program(&mut self.object, "count_probe");
        let place = (offset, semaphore);
        let link = attach_probe(&program, self.uprobes, file, place, false);
        self.links = vec![link.map_err(|e| why(&e))?];
        Ok(())
    }

    /// Counts no more.
    pub fn stop(&mut self) {
        self.links.clear();
    }

    /// What was counted since these were loaded.
    #[must_use]
    pub fn counted(&self) -> Counted {
        Counted {
            ours: self.sum("hits", 0),
            all: self.sum("hits", 1),
        }
    }

    /// System calls of the processes with this number, since these were loaded.
    #[must_use]
    pub fn calls(&self, number: u32) -> u64 {
        self.sum("calls", number)
    }

    /// Hits of the processes at the tracepoint with this place, since these were loaded.
    #[must_use]
    pub fn hits_of(&self, place: usize) -> u64 {
        u32::try_from(place).map_or(0, |place| self.sum("hits_of", place))
    }

    fn sum(&self, map: &str, key: u32) -> u64 {
        let map = map_of(&self.object, map);
        let values = map.lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY);
        let values = values.ok().flatten().unwrap_or_default();
        let word = |bytes: &Vec<u8>| {
            bytes
                .first_chunk()
                .map_or(0, |bytes| u64::from_ne_bytes(*bytes))
        };
        values.iter().map(word).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::{Call, First};

    fn counts() -> Option<Counts> {
        match Counts::load(&[std::process::id()]) {
            Ok(counts) => Some(counts),
            Err(LoadError::Privilege(missing)) => {
                println!("skipped: {missing:?}");
                None
            }
            Err(e) => panic!("{e}"),
        }
    }

    #[test]
    fn calls_of_a_function_and_of_the_system_are_counted_until_it_stops() {
        let Some(mut counts) = counts() else { return };
        let call = Call::new(First::Nop, 7);
        let file = Path::new("/proc/self/exe");
        counts
            .probe(file, call.offset().expect("ours"), 0)
            .expect("attached");
        call.repeat(100);
        counts.stop();
        call.repeat(100);
        assert_eq!(counts.counted().ours, 100);
        counts.system_calls().expect("attached");
        for _ in 0..50 {
            let _ = rustix::process::getppid();
        }
        counts.stop();
        let number = u32::try_from(libc::SYS_getppid).expect("a small number");
        assert_eq!(counts.calls(number), 50);
        assert!(counts.counted().all >= counts.counted().ours);
        let refused = counts.tracepoints(&["task_rename", "no_such_tracepoint", "sys_exit"]);
        assert!(refused[0].is_none() && refused[1].is_some() && refused[2].is_none());
        for _ in 0..20 {
            rustix::thread::set_name(c"counted").expect("a short name");
        }
        counts.stop();
        assert_eq!(counts.hits_of(0), 20);
        assert_eq!(counts.hits_of(1), 0);
        assert!(counts.hits_of(2) >= 20);
    }
}
