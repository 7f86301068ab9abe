//! What a loop of a session accesses: groups of lines, and how each phase uses them.

use std::str::FromStr;

use thiserror::Error;

/// Bytes of a cache line.
pub const LINE: usize = 64;
/// Elements of 4 bytes in a line. An element stands for one access, so this is the most accesses
/// that a line can have in one loop.
pub const SLOTS: usize = LINE / 4;

/// Who has the lines of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Each session has its own.
    Session,
    /// All sessions share them.
    Global,
}

/// How one phase uses the lines of a group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Use {
    /// The phase, counted from 0.
    pub phase: usize,
    /// The share of its accesses that are writes, 0 to 1.
    pub updates: f64,
    /// Its number of accesses, relative to the other uses. The largest has as many as fit.
    pub accesses: f64,
}

/// Lines that are used alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Who has them.
    pub scope: Scope,
    /// How many.
    pub lines: usize,
    /// One use: the lines are phase-local. Several: the phases share them.
    pub uses: Vec<Use>,
}

/// How accesses spread over the lines of a group. Each line has at least one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Spread {
    /// The line of rank r of n has (n/r)^s accesses, as far as they fit. The thesis has s = 1.
    Zipf(f64),
    /// Each line has this number, as far as they fit.
    Even(usize),
}

/// Everything that a loop accesses.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The number of phases.
    pub phases: usize,
    /// The lines.
    pub groups: Vec<Group>,
    /// How accesses spread over the lines of each group.
    pub spread: Spread,
    /// How often a loop visits each phase. Each visit has an equal part of the phase's accesses.
    pub visits: usize,
    /// By phase: other work of a visit, in ns. Phases beyond the last one have none.
    pub compute_ns: Vec<f64>,
}

/// What is wrong with a plan, or with its text.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PlanError {
    /// The text of a group.
    #[error("'{text}' does not describe lines: {why}; write {form}")]
    Text {
        /// What was written.
        text: String,
        /// What is wrong.
        why: String,
        /// What it looks like.
        form: &'static str,
    },
    /// A phase without lines has no accesses.
    #[error("phase {0} has no lines; give it at least one")]
    EmptyPhase(usize),
    /// A use names a phase that does not exist.
    #[error("there is no phase {0}; phases count from 0")]
    NoPhase(usize),
    /// Too many phases share a group.
    #[error("{0} phases share a group of lines; at most {SLOTS} can")]
    Shared(usize),
    /// The path is longer than an element can address.
    #[error("the lines take more than {0} bytes; use fewer")]
    TooLarge(u64),
}

impl Plan {
    /// Phases with equally many lines each, which all sessions share: the thesis's experiments.
    #[must_use]
    pub fn even(phases: usize, bytes: u64, updates: f64, spread: Spread) -> Self {
        let lines = (bytes as usize / LINE / phases).max(1);
        let group = |phase| Group {
            scope: Scope::Global,
            lines,
            uses: vec![Use {
                phase,
                updates,
                accesses: 1.0,
            }],
        };
        Self {
            phases,
            groups: (0..phases).map(group).collect(),
            spread,
            visits: 1,
            compute_ns: Vec::new(),
        }
    }

    /// Phases from their texts, and groups that several phases share.
    ///
    /// # Errors
    ///
    /// A phase without lines, or a shared group that names none of the phases.
    pub fn new(
        phases: &[PhaseLines],
        shared: &[SharedLines],
        spread: Spread,
    ) -> Result<Self, PlanError> {
        let of_phase = |(phase, lines): (usize, &PhaseLines)| {
            [
                (Scope::Session, lines.session),
                (Scope::Global, lines.global),
            ]
            .map(|(scope, share)| Group {
                scope,
                lines: share.lines,
                uses: vec![Use {
                    phase,
                    updates: share.updates,
                    accesses: share.accesses,
                }],
            })
        };
        let groups = phases.iter().enumerate().flat_map(of_phase);
        let groups = groups.chain(shared.iter().flat_map(|s| s.0.clone()));
        let plan = Self {
            phases: phases.len(),
            groups: groups.filter(|group| group.lines > 0).collect(),
            spread,
            visits: 1,
            compute_ns: Vec::new(),
        };
        plan.check()?;
        Ok(plan)
    }

    fn check(&self) -> Result<(), PlanError> {
        let uses = || self.groups.iter().flat_map(|group| &group.uses);
        if let Some(bad) = uses().find(|u| u.phase >= self.phases) {
            return Err(PlanError::NoPhase(bad.phase));
        }
        let empty = (0..self.phases).find(|phase| uses().all(|u| u.phase != *phase));
        if let Some(phase) = empty {
            return Err(PlanError::EmptyPhase(phase));
        }
        let most = self.groups.iter().map(|group| group.uses.len()).max();
        match most {
            Some(most) if most > SLOTS => Err(PlanError::Shared(most)),
            _ => Ok(()),
        }
    }

    /// The accesses of one use of a group to the line of each rank, counted from 0.
    ///
    /// A line's slots are divided evenly among the uses of its group.
    #[must_use]
    pub fn counts(&self, group: &Group, used: &Use) -> Vec<usize> {
        let uses = self.groups.iter().flat_map(|g| &g.uses);
        let largest = uses.map(|u| u.accesses).fold(f64::MIN_POSITIVE, f64::max);
        let most = SLOTS / group.uses.len().max(1);
        let count = |rank: usize| {
            let full = match self.spread {
                Spread::Zipf(s) => (group.lines as f64 / (rank + 1) as f64).powf(s),
                Spread::Even(count) => count as f64,
            };
            let full = full.floor().min(most as f64);
            ((full * used.accesses / largest).round() as usize).clamp(1, most)
        };
        (0..group.lines).map(count).collect()
    }

    /// Bytes of the lines of all sessions together.
    #[must_use]
    pub fn bytes(&self, sessions: usize) -> u64 {
        let of_group = |group: &Group| {
            let copies = match group.scope {
                Scope::Session => sessions as u64,
                Scope::Global => 1,
            };
            copies.saturating_mul((group.lines * LINE) as u64)
        };
        let bytes = self.groups.iter().map(of_group);
        bytes.fold(0, u64::saturating_add)
    }

    /// Bytes of the lines that one session accesses in a loop.
    #[must_use]
    pub fn working_set(&self) -> u64 {
        self.groups
            .iter()
            .map(|group| (group.lines * LINE) as u64)
            .sum()
    }
}

/// `N[,UPDATES[,ACCESSES]]`: some lines of one phase.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Share {
    lines: usize,
    updates: f64,
    accesses: f64,
}

/// `LOCAL/GLOBAL`: the lines of one phase; of the session, and of all sessions.
#[derive(Debug, Clone, PartialEq)]
pub struct PhaseLines {
    session: Share,
    global: Share,
}

/// `LOCAL/GLOBAL:PHASE,…/PHASE,…`: lines that several phases share.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedLines([Group; 2]);

const PHASE_FORM: &str = "LINES[,UPDATES[,ACCESSES]]/LINES[,UPDATES[,ACCESSES]], such as 8/512,0.5";
const SHARED_FORM: &str =
    "LINES/LINES:PHASE,UPDATES,UPDATES[,ACCESSES,ACCESSES]/PHASE…, such as 4/64:0,0,1/1,0,0.5";

impl FromStr for PhaseLines {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let wrong = |why: String| PlanError::Text {
            text: text.into(),
            why,
            form: PHASE_FORM,
        };
        let halves = text
            .split_once('/')
            .ok_or_else(|| wrong("no / in it".into()))?;
        let share = |part: &str| -> Result<Share, PlanError> {
            let fields: Vec<&str> = part.split(',').collect();
            if fields.len() > 3 {
                return Err(wrong(format!("'{part}' has more than three fields")));
            }
            let updates = fields.get(1).map_or(Ok(0.0), |t| updates(t));
            let accesses = fields.get(2).map_or(Ok(1.0), |t| accesses(t));
            Ok(Share {
                lines: lines(fields[0]).map_err(&wrong)?,
                updates: updates.map_err(&wrong)?,
                accesses: accesses.map_err(&wrong)?,
            })
        };
        Ok(Self {
            session: share(halves.0)?,
            global: share(halves.1)?,
        })
    }
}

impl FromStr for SharedLines {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        Self::read(text).map_err(|why| PlanError::Text {
            text: text.into(),
            why,
            form: SHARED_FORM,
        })
    }
}

impl SharedLines {
    fn read(text: &str) -> Result<Self, String> {
        let (counts, uses) = text.split_once(':').ok_or("no : in it")?;
        let (session, global) = counts.split_once('/').ok_or("no / before the :")?;
        let mut groups =
            [(Scope::Session, session), (Scope::Global, global)].map(|(scope, count)| {
                lines(count).map(|lines| Group {
                    scope,
                    lines,
                    uses: Vec::new(),
                })
            });
        for part in uses.split('/') {
            let fields: Vec<&str> = part.split(',').collect();
            let (&[phase, ..], 1 | 3 | 5) = (fields.as_slice(), fields.len()) else {
                return Err(format!(
                    "'{part}' has {} fields, not 1, 3 or 5",
                    fields.len()
                ));
            };
            let phase = phase
                .parse()
                .map_err(|_| format!("'{phase}' is no phase"))?;
            for (i, group) in groups.iter_mut().enumerate() {
                let group = group.as_mut().map_err(|why| why.clone())?;
                if group.uses.iter().any(|u| u.phase == phase) {
                    return Err(format!("phase {phase} appears twice"));
                }
                group.uses.push(Use {
                    phase,
                    updates: fields.get(1 + i).map_or(Ok(0.0), |t| updates(t))?,
                    accesses: fields.get(3 + i).map_or(Ok(1.0), |t| accesses(t))?,
                });
            }
        }
        let [session, global] = groups;
        let groups = [session?, global?];
        if groups[0].uses.len() < 2 {
            return Err("fewer than two phases share them".into());
        }
        Ok(Self(groups))
    }
}

fn lines(text: &str) -> Result<usize, String> {
    let count: Option<u32> = text.parse().ok();
    count
        .map(|n| n as usize)
        .ok_or_else(|| format!("'{text}' is no number of lines"))
}

/// Reads a share: `0.1`, `10%`; 0 to 1.
///
/// # Errors
///
/// What is wrong with it.
pub fn updates(text: &str) -> Result<f64, String> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.parse().map(|p: f64| p / 100.0),
        None => text.parse(),
    };
    match number {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("'{text}' is no share; write 0 to 1, or 0% to 100%")),
    }
}

fn accesses(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if number > 0.0 && number < 1e9 => Ok(number),
        _ => Err(format!(
            "'{text}' is no relative number of accesses; write one above 0"
        )),
    }
}

/// Reads how accesses spread: `zipf`, `zipf:0.8`, `even`, `even:4`.
///
/// # Errors
///
/// What is wrong with it.
pub fn spread(text: &str) -> Result<Spread, String> {
    let (name, value) = text.split_once(':').unwrap_or((text, "1"));
    let spread = match name {
        "zipf" => value
            .parse()
            .ok()
            .filter(|s| (0.0..=10.0).contains(s))
            .map(Spread::Zipf),
        "even" => value
            .parse()
            .ok()
            .filter(|n| (1..=SLOTS).contains(n))
            .map(Spread::Even),
        _ => None,
    };
    spread.ok_or_else(|| {
        format!("'{text}' is no distribution; write zipf, zipf:0.8 (0 to 10), even, or even:4 (1 to {SLOTS})")
    })
}

#[cfg(test)]
mod tests;
