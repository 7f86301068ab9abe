//! Which CPU the observer runs on: not one that the application needs.

use std::io;

use rustix::thread::{CpuSet, sched_setaffinity};

pub use crate::topology::{Topology, allowed_here};

/// Which hardware context beside the application's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// The other hardware thread of the application's core (SMT).
    SameCore,
    /// A hardware thread of another core.
    OtherCore,
}

/// Where the observer runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The observer's CPU.
    pub cpu: u32,
    /// Where the application runs, if that is known.
    pub observed: Option<u32>,
    /// Whether both are hardware threads of one core.
    pub same_core: bool,
    /// The application's threads may be put onto the observer's CPU too.
    pub shared: bool,
}

/// No CPU can be chosen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// The wished-for CPU does not run.
    #[error("CPU {cpu} is offline; online: {}", list(.online))]
    Offline {
        /// What was wished for.
        cpu: u32,
        /// What could be.
        online: Vec<u32>,
    },
    /// There is none of that number.
    #[error("this machine has no CPU {cpu}; it has {}", list(.present))]
    None {
        /// What was wished for.
        cpu: u32,
        /// What is there.
        present: Vec<u32>,
    },
    /// This process may not run there.
    #[error(
        "CPU {cpu} is not among those that this process may run on ({}): taskset and the cgroup's \
         cpuset decide that", list(.allowed)
    )]
    NotAllowed {
        /// What was wished for.
        cpu: u32,
        /// What could be.
        allowed: Vec<u32>,
    },
    /// The observer would take the application's CPU from it.
    #[error(
        "only CPU {0} may be used: an observer needs a CPU of its own beside the application's, \
         or it would see only the moments in which that does not run; at a --period of a \
         millisecond and more it sleeps in between, and both may have the same one"
    )]
    OnlyOne(u32),
    /// The whole application is bound to the wished-for CPU.
    #[error("the application may run on CPU {0} alone: put the observer elsewhere")]
    Taken(u32),
    /// No hardware threads share a core, or none is free.
    #[error(
        "CPU {observed} has no other hardware thread that may be used (no SMT, or it is offline or \
         not allowed): use --on other-core"
    )]
    NoSibling {
        /// Where the application runs.
        observed: u32,
    },
    /// What is wished for can't count the core that is to be counted.
    #[error(
        "a core is counted from the other hardware thread of it: for core:{0}:EVENT leave out --cpu \
         and --on, or name a CPU that shares its core with CPU {0}"
    )]
    NotBeside(u32),
    /// Where the application runs is not known, so neither is which CPU shares its core.
    #[error("where the application runs is not known: say --cpu instead of --on same-core")]
    Unknown,
    /// The kernel.
    #[error("can't move the observer to CPU {cpu}: {why}")]
    Refused {
        /// Where to.
        cpu: u32,
        /// What it said.
        why: String,
    },
}

fn list(cpus: &[u32]) -> String {
    let words: Vec<String> = cpus.iter().map(ToString::to_string).collect();
    words.join(", ")
}

/// What is wished of a placement, and what is known of the application.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    /// This CPU and no other.
    pub cpu: Option<u32>,
    /// Beside the application's.
    pub on: Option<Where>,
    /// Where any of the application's threads may run; empty: not known.
    pub application: Vec<u32>,
    /// The other hardware thread of this CPU's core, since that core's counters are read.
    pub beside: Option<u32>,
    /// Where its busiest thread ran last.
    pub observed: Option<u32>,
    /// The observer sleeps between samples: it may have the application's CPU too.
    pub sleeps: bool,
}

impl Placement {
    /// Chooses: as wished, else of the CPUs that `allowed` has a core that the application can't
    /// run on, else another core than the one where it runs, else another hardware thread. Of
    /// several the last: interrupts and strays prefer the first.
    pub fn choose(
        topology: &Topology,
        allowed: &[u32],
        wish: &Wish,
    ) -> Result<Self, PlacementError> {
        let usable: Vec<u32> = allowed
            .iter()
            .copied()
            .filter(|cpu| topology.online.contains(cpu))
            .collect();
        // Bound to one CPU, it runs there, wherever it was seen before.
        let observed = match (&wish.beside, wish.application.as_slice()) {
            (Some(cpu), _) | (None, [cpu]) => Some(*cpu),
            _ => wish.observed,
        };
        if let Some(cpu) = wish.cpu {
            Self::check(topology, allowed, cpu)?;
            if wish.application == [cpu] && !wish.sleeps {
                return Err(PlacementError::Taken(cpu));
            }
            if let Some(other) = wish.beside
                && (other == cpu || !topology.share_core(other, cpu))
            {
                return Err(PlacementError::NotBeside(other));
            }
            return Ok(Self::at(topology, cpu, observed, wish));
        }
        if let [only] = topology.online.as_slice()
            && !wish.sleeps
        {
            return Err(PlacementError::OnlyOne(*only));
        }
        if let Some(cpu) = wish.beside {
            Self::exists(topology, cpu)?;
            if wish.on == Some(Where::OtherCore) {
                return Err(PlacementError::NotBeside(cpu));
            }
        }
        let same_core = |cpu: u32| observed.is_some_and(|o| topology.share_core(o, cpu));
        let others = usable.iter().copied().filter(|cpu| Some(*cpu) != observed);
        let best = match wish.beside.map(|_| Where::SameCore).or(wish.on) {
            Some(Where::SameCore) => {
                let observed = observed.ok_or(PlacementError::Unknown)?;
                return others
                    .filter(|cpu| same_core(*cpu))
                    .max()
                    .map(|cpu| Self::at(topology, cpu, Some(observed), wish))
                    .ok_or(PlacementError::NoSibling { observed });
            }
            Some(Where::OtherCore) => others
                .filter(|cpu| !same_core(*cpu))
                .max_by_key(|cpu| (!wish.application.contains(cpu), *cpu)),
            None => {
                others.max_by_key(|cpu| (!wish.application.contains(cpu), !same_core(*cpu), *cpu))
            }
        };
        match best {
            Some(cpu) => Ok(Self::at(topology, cpu, observed, wish)),
            None if wish.sleeps && wish.on.is_none() && !usable.is_empty() => {
                Ok(Self::at(topology, usable[0], observed, wish))
            }
            None => Err(PlacementError::OnlyOne(
                usable.first().copied().or(observed).unwrap_or(0),
            )),
        }
    }

    fn check(topology: &Topology, allowed: &[u32], cpu: u32) -> Result<(), PlacementError> {
        Self::exists(topology, cpu)?;
        if !allowed.contains(&cpu) {
            return Err(PlacementError::NotAllowed {
                cpu,
                allowed: allowed.to_vec(),
            });
        }
        Ok(())
    }

    fn exists(topology: &Topology, cpu: u32) -> Result<(), PlacementError> {
        if topology.online.contains(&cpu) {
            return Ok(());
        }
        Err(if topology.present.contains(&cpu) {
            PlacementError::Offline {
                cpu,
                online: topology.online.clone(),
            }
        } else {
            PlacementError::None {
                cpu,
                present: topology.present.clone(),
            }
        })
    }

    fn at(topology: &Topology, cpu: u32, observed: Option<u32>, wish: &Wish) -> Self {
        Self {
            cpu,
            observed,
            same_core: observed.is_some_and(|o| o != cpu && topology.share_core(o, cpu)),
            shared: wish.application.contains(&cpu),
        }
    }

    /// Moves the calling thread there.
    pub fn take(&self) -> Result<(), PlacementError> {
        let mut set = CpuSet::new();
        let refused = |why: String| PlacementError::Refused { cpu: self.cpu, why };
        if self.cpu as usize >= CpuSet::MAX_CPU {
            return Err(refused("its number is too large".into()));
        }
        set.set(self.cpu as usize);
        sched_setaffinity(None, &set).map_err(|e| refused(e.to_string()))
    }

    /// Keeps the calling thread off it, if there is another CPU that it may run on.
    pub fn leave(&self) -> io::Result<()> {
        let mut set = CpuSet::new();
        let others = allowed_here()?;
        others
            .iter()
            .filter(|cpu| **cpu != self.cpu)
            .for_each(|cpu| set.set(*cpu as usize));
        if set.count() == 0 {
            return Ok(());
        }
        Ok(sched_setaffinity(None, &set)?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    /// Two cores of two hardware threads; CPU 3 is off; 4 and 5 have a core each.
    fn machine() -> Topology {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("inside")).expect("made");
            fs::write(path, text).expect("written");
        };
        write("online", "0-2,4-5\n");
        write("present", "0-5\n");
        for (cpu, threads) in [(0, "0,2"), (1, "1"), (2, "0,2"), (4, "4"), (5, "5")] {
            write(&format!("cpu{cpu}/topology/thread_siblings_list"), threads);
        }
        Topology::read(folder.path()).expect("read")
    }

    fn wish(application: &[u32], observed: Option<u32>) -> Wish {
        Wish {
            application: application.to_vec(),
            observed,
            ..Wish::default()
        }
    }

    const ALL: &[u32] = &[0, 1, 2, 3, 4, 5];

    #[test]
    fn a_core_that_the_application_cannot_use_is_best() {
        let placed = Placement::choose(&machine(), ALL, &wish(&[0, 4, 5], Some(0)));
        let placed = placed.expect("there are CPUs");
        assert_eq!(
            (placed.cpu, placed.shared, placed.same_core),
            (1, false, false)
        );
    }

    #[test]
    fn a_core_is_counted_from_its_other_hardware_thread() {
        let beside = |beside, cpu, on| {
            let wish = Wish {
                beside: Some(beside),
                cpu,
                on,
                ..wish(&[1], Some(1))
            };
            Placement::choose(&machine(), ALL, &wish)
        };
        let placed = beside(0, None, None).expect("0 and 2 share one");
        assert_eq!(
            (placed.cpu, placed.observed, placed.same_core),
            (2, Some(0), true)
        );
        assert_eq!(beside(2, Some(0), None).expect("wished so").cpu, 0);
        for (cpu, on) in [
            (Some(0), None),
            (Some(4), None),
            (None, Some(Where::OtherCore)),
        ] {
            assert_eq!(beside(0, cpu, on), Err(PlacementError::NotBeside(0)));
        }
        assert_eq!(
            beside(1, None, None),
            Err(PlacementError::NoSibling { observed: 1 })
        );
        assert!(matches!(
            beside(77, None, None),
            Err(PlacementError::None { cpu: 77, .. })
        ));
    }

    #[test]
    fn on_the_same_core_is_its_other_hardware_thread() {
        let on = |on, observed| {
            let wish = Wish {
                on: Some(on),
                ..wish(&[], Some(observed))
            };
            Placement::choose(&machine(), ALL, &wish)
        };
        let placed = on(Where::SameCore, 0).expect("0 and 2 share one");
        assert_eq!((placed.cpu, placed.same_core), (2, true));
        assert_eq!(
            on(Where::SameCore, 1),
            Err(PlacementError::NoSibling { observed: 1 })
        );
        assert_eq!(on(Where::OtherCore, 5).expect("others").cpu, 4);
        let unknown = Wish {
            on: Some(Where::SameCore),
            ..Wish::default()
        };
        assert_eq!(
            Placement::choose(&machine(), ALL, &unknown),
            Err(PlacementError::Unknown)
        );
    }

    #[test]
    fn impossible_wishes_are_told_apart() {
        let at = |cpu, allowed: &[u32]| {
            let wish = Wish {
                cpu: Some(cpu),
                ..wish(&[1], None)
            };
            Placement::choose(&machine(), allowed, &wish)
        };
        assert!(matches!(at(3, ALL), Err(PlacementError::Offline { .. })));
        assert!(matches!(at(9, ALL), Err(PlacementError::None { .. })));
        assert!(matches!(
            at(4, &[0, 1]),
            Err(PlacementError::NotAllowed { .. })
        ));
        assert_eq!(at(1, ALL), Err(PlacementError::Taken(1)));
        assert_eq!(at(2, ALL).map(|placed| placed.cpu), Ok(2));
    }

    #[test]
    fn one_cpu_is_not_enough() {
        let only = |sleeps| {
            let wish = Wish {
                sleeps,
                ..wish(&[4], None)
            };
            Placement::choose(&machine(), &[4], &wish)
        };
        assert_eq!(only(false), Err(PlacementError::OnlyOne(4)));
        // Unless it only wakes up for its samples.
        assert_eq!(only(true).map(|at| (at.cpu, at.shared)), Ok((4, true)));
        let single = Topology {
            online: vec![0],
            ..machine()
        };
        assert_eq!(
            Placement::choose(&single, &[0], &wish(&[], None)),
            Err(PlacementError::OnlyOne(0))
        );
    }

    proptest! {
        #[test]
        fn what_is_chosen_may_be_used(
            allowed in proptest::collection::btree_set(0u32..7, 0..7),
            application in proptest::collection::btree_set(0u32..6, 0..6),
            observed in proptest::option::of(0u32..6),
        ) {
            let allowed: Vec<u32> = allowed.into_iter().collect();
            let application: Vec<u32> = application.into_iter().collect();
            let machine = machine();
            if let Ok(placed) = Placement::choose(&machine, &allowed, &wish(&application, observed)) {
                prop_assert!(allowed.contains(&placed.cpu) && machine.online.contains(&placed.cpu));
                prop_assert_ne!(Some(placed.cpu), placed.observed);
            }
        }
    }

    #[test]
    fn a_thread_can_be_moved_to_where_it_may_run() {
        let allowed = allowed_here().expect("asked");
        let cpu = *allowed.last().expect("we run somewhere");
        let placement = Placement {
            cpu,
            observed: None,
            same_core: false,
            shared: false,
        };
        std::thread::spawn(move || {
            if allowed.len() > 1 {
                placement.leave().expect("there are others");
                assert!(!allowed_here().expect("asked").contains(&cpu));
            }
            placement.take().expect("allowed");
            assert_eq!(allowed_here().expect("asked"), [cpu]);
            placement.leave().expect("it stays where there is no other");
            assert_eq!(allowed_here().expect("asked"), [cpu]);
        })
        .join()
        .expect("moved");
    }
}
