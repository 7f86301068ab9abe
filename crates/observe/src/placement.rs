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
    #[error("CPU {cpu} is offline; use one of {}", list(.online))]
    Offline {
        /// What was wished for.
        cpu: u32,
        /// What could be.
        online: Vec<u32>,
    },
    /// There is none of that number.
    #[error("this machine has no CPU {cpu}; use one of {}", list(.present))]
    None {
        /// What was wished for.
        cpu: u32,
        /// What is there.
        present: Vec<u32>,
    },
    /// This process may not run there.
    #[error(
        "this process may not run on CPU {cpu}, but on {}; check taskset and the cgroup's cpuset", list(.allowed)
    )]
    NotAllowed {
        /// What was wished for.
        cpu: u32,
        /// What could be.
        allowed: Vec<u32>,
    },
    /// The observer would take the application's CPU from it.
    #[error(
        "only CPU {0} may be used, and the application needs it; allow another CPU, or use a \
         --period of a millisecond or more, at which the observer sleeps"
    )]
    OnlyOne(u32),
    /// The whole application is bound to the wished-for CPU.
    #[error("the application may run only on CPU {0}; choose another CPU for the observer")]
    Taken(u32),
    /// No hardware threads share a core, or none is free.
    #[error(
        "CPU {observed} has no second hardware thread that may be used (no SMT, or it is offline \
         or not allowed); use --on other-core"
    )]
    NoSibling {
        /// Where the application runs.
        observed: u32,
    },
    /// Where the application runs is not known, so neither is which CPU shares its core.
    #[error("can't use --on same-core: the application's CPU is not known; use --cpu")]
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
        let observed = match wish.application.as_slice() {
            [cpu] => Some(*cpu),
            _ => wish.observed,
        };
        if let Some(cpu) = wish.cpu {
            Self::check(topology, allowed, cpu)?;
            if wish.application == [cpu] && !wish.sleeps {
                return Err(PlacementError::Taken(cpu));
            }
            return Ok(Self::at(topology, cpu, observed, wish));
        }
        if let [only] = topology.online.as_slice()
            && !wish.sleeps
        {
            return Err(PlacementError::OnlyOne(*only));
        }
        let same_core = |cpu: u32| observed.is_some_and(|o| topology.share_core(o, cpu));
        let others = usable.iter().copied().filter(|cpu| Some(*cpu) != observed);
        let best = match wish.on {
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
mod tests;
