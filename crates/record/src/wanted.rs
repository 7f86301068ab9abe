//! The hardware events that a recording is asked for.

use tailscope_counters::{Event, EventError, Pmus};
use tailscope_trace::is_taken;

/// Every pair of so many events meets about once in ten minutes where four fit at a time.
const MOST_EVENTS: usize = 64;

/// Why a list of events can't be one recording's.
#[derive(Debug, thiserror::Error)]
pub enum WantedError {
    /// One of them is none.
    #[error(transparent)]
    Event(#[from] EventError),
    /// Two different ones would be one column of the ledger.
    #[error("{0} and {1} would both be column '{2}'; add name=… to one of them")]
    Twice(String, String, String),
    /// Its column would be one that every ledger has.
    #[error("{0} can't be column '{1}', which every ledger has for something else; add name=…")]
    Taken(String, String),
    /// There are more than a round of turns has room for.
    #[error(
        "{0} events are too many: each pair would rarely be counted together; use at most {MOST_EVENTS}"
    )]
    TooMany(usize),
}

/// The events of a list as `--counters` has it, each once and with a column of its own.
///
/// # Errors
/// What is wrong with one of them, or with them together.
pub fn wanted_events(list: &str, pmus: &Pmus) -> Result<Vec<Event>, WantedError> {
    let mut seen: Vec<Event> = Vec::new();
    for event in Event::parse_list(list, pmus)? {
        match seen.iter().find(|other| other.column == event.column) {
            Some(other) if (other.kind, other.config) != (event.kind, event.config) => {
                let (other, event) = (other.clone(), event);
                return Err(WantedError::Twice(other.name, event.name, event.column));
            }
            Some(_) => {}
            None if is_taken(&event.column) => {
                return Err(WantedError::Taken(event.name, event.column));
            }
            None => seen.push(event),
        }
    }
    if seen.len() > MOST_EVENTS {
        return Err(WantedError::TooMany(seen.len()));
    }
    Ok(seen)
}
