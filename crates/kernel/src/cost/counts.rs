//! How often a hook is hit, and by whom.

use std::path::Path;

use libbpf_rs::{Link, MapCore, MapFlags, Object};

use super::hooks::{attach_probe, load, why};
use crate::Mechanisms;
use crate::load_error::{LoadError, kernel};
use crate::object::{map_of, program};
use crate::open::check;
use crate::probes::{Uprobes, choose};

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
    link: Option<Link>,
}

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
            link: None,
        })
    }

    /// Counts hits of a tracepoint from now on.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn tracepoint(&mut self, name: &str) -> Result<(), String> {
        let counter = match name {
            "sys_enter" => "count_syscall",
            _ => "count_raw",
        };
        let program = program(&mut self.object, counter);
        let link = program.attach_raw_tracepoint(name).map_err(|e| why(&e))?;
        self.link = Some(link);
        Ok(())
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
        self.link = Some(link.map_err(|e| why(&e))?);
        Ok(())
    }

    /// Counts no more.
    pub fn stop(&mut self) {
        self.link = None;
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
        counts.tracepoint("sys_enter").expect("attached");
        for _ in 0..50 {
            let _ = rustix::process::getppid();
        }
        counts.stop();
        let number = u32::try_from(libc::SYS_getppid).expect("a small number");
        assert_eq!(counts.calls(number), 50);
        assert!(counts.counted().all >= counts.counted().ours);
    }
}
