//! The events of a window as lines of JSON, each an object by itself (NDJSON), and their schema.

mod fields;
mod schema;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use tailscope_signals::event::{Event, What};

use crate::trace::{NO_CPU, Trace};
use fields::fields_of;
pub use schema::{names, schema};

/// Which events are wanted.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// From this moment on, in ns of `CLOCK_MONOTONIC`.
    pub from_ns: Option<u64>,
    /// Before this one.
    pub to_ns: Option<u64>,
    /// Of threads of this process, and those that are about one.
    pub process: Option<u32>,
    /// Of these names, such as `switch`; none: of all.
    pub names: Vec<String>,
}

/// One event.
#[derive(Debug)]
pub struct Line {
    name: &'static str,
    fields: Vec<(&'static str, Value)>,
}

impl Serialize for Line {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.fields.iter().map(|(name, value)| (name, value)))
    }
}

/// The events of a window in the order of their time.
pub fn lines<'t>(trace: &'t Trace, wanted: &'t Wanted) -> impl Iterator<Item = Line> + 't {
    let (from, to) = (
        wanted.from_ns.unwrap_or(0),
        wanted.to_ns.unwrap_or(u64::MAX),
    );
    trace
        .events_between(from, to)
        .filter(move |(_, event)| event.at < to)
        .filter(|(_, event)| wanted.process.is_none_or(|of| is_about(trace, event, of)))
        .filter_map(|(cpu, event)| line(trace, cpu, &event))
        .filter(|line| wanted.names.is_empty() || wanted.names.iter().any(|name| name == line.name))
}

/// Whether it is of a thread of this process, or about one.
fn is_about(trace: &Trace, event: &Event, process: u32) -> bool {
    let of = |tid: u32| trace.about.threads.get(&tid).map(|thread| thread.process);
    let (other, to) = match event.what {
        What::Switch {
            process,
            to_process,
            ..
        } => (Some(process), Some(to_process)),
        What::Waking { process, .. } | What::Tick { process, .. } | What::Name { process, .. } => {
            (Some(process), None)
        }
        What::Migrate { thread, .. } => (of(thread), None),
        _ => (None, None),
    };
    [of(event.tid), other, to].contains(&Some(process))
}

fn line(trace: &Trace, cpu: u32, event: &Event) -> Option<Line> {
    let (name, own) = fields_of(trace, event)?;
    let mut fields = vec![
        ("at_ns", json!(event.at)),
        ("event", json!(name)),
        ("cpu", json!((cpu != NO_CPU).then_some(cpu))),
        ("tid", json!(event.tid)),
        (
            "thread",
            json!((event.tid != 0).then(|| trace.thread(event.tid))),
        ),
    ];
    fields.extend(own);
    Some(Line { name, fields })
}

#[cfg(test)]
mod tests;
