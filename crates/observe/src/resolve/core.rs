//! `core:CPU:EVENT`: what runs on a CPU executes in user space, counted from the other hardware
//! thread of its core in a few cycles: the core's count less the observer's own.

use std::sync::Arc;

use tailscope_signals::counters::{CoreCounter, CoreEvent, CoreEventError, EventError, Pmus};

use super::ResolveError;
use crate::signal::{Names, Reader, Role, Signal};

pub(super) fn resolve(signal: String, event: &str) -> Result<Signal, ResolveError> {
    let pmus = Pmus::here();
    let machine = |why: String| ResolveError::Machine {
        signal: signal.clone(),
        why,
    };
    let event = CoreEvent::parse(event, &pmus).map_err(|e| match e {
        _ if pmus.0.is_empty() => machine("this machine has no hardware counters".into()),
        CoreEventError::Alone(_) | CoreEventError::Event(EventError::NoPmu { .. }) => {
            machine(e.to_string())
        }
        CoreEventError::Event(e) => ResolveError::None {
            signal: signal.clone(),
            why: e.to_string(),
        },
    })?;
    // What is refused is refused everywhere: the observer opens them anew where it runs.
    CoreCounter::open(&event).map_err(|e| machine(e.to_string()))?;
    Ok(Signal {
        name: signal,
        kind: Some(Role::Counter),
        owner: None,
        names: Names::None,
        how:
            "two counters of the core that the observer shares: both hardware threads' less its own"
                .into(),
        reader: Reader::Core(Arc::new(event)),
        page: None,
    })
}
