//! From kept rows to OpenTelemetry's own message.
//!
//! A request that said to which trace it belongs is a span of that trace. Every other span is a trace
//! of its own: ids would claim a parent that nobody saw. What time went to is in attributes, in ns.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::path::Path;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use tailscope_record::describe_machine;
use tailscope_trace::{Cause, CauseSet, Link, SpanRow};

use super::Kept;
use crate::identity::Identity;

/// Makes messages, with ids that no other agent makes.
pub(super) struct Composer {
    measured: CauseSet,
    host: String,
    seed: RandomState,
    made: u64,
}

fn attribute(key: impl Into<String>, value: Value) -> KeyValue {
    KeyValue {
        key: key.into(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

fn text(text: impl Into<String>) -> Value {
    Value::StringValue(text.into())
}

impl Composer {
    pub(super) fn new(measured: CauseSet) -> Self {
        Self {
            measured,
            host: describe_machine().host,
            seed: RandomState::new(),
            made: 0,
        }
    }

    /// One request with these rows, process by process.
    pub(super) fn request(&mut self, rows: &[Kept]) -> ExportTraceServiceRequest {
        let mut by_process: BTreeMap<i32, Vec<Span>> = BTreeMap::new();
        for kept in rows {
            let span = self.span(kept);
            by_process.entry(kept.row.pid).or_default().push(span);
        }
        let resource_spans = by_process
            .into_iter()
            .map(|(pid, spans)| self.of_process(pid, spans))
            .collect();
        ExportTraceServiceRequest { resource_spans }
    }

    fn of_process(&self, pid: i32, spans: Vec<Span>) -> ResourceSpans {
        ResourceSpans {
            resource: Some(Resource {
                attributes: self.resource(pid),
                ..Resource::default()
            }),
            scope_spans: vec![ScopeSpans {
                scope: Some(InstrumentationScope {
                    name: "tailscope".into(),
                    version: env!("CARGO_PKG_VERSION").into(),
                    ..InstrumentationScope::default()
                }),
                spans,
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }
    }

    /// The attributes of a process. Processes that share a name and a port are one instance of their
    /// service.
    fn resource(&self, pid: i32) -> Vec<KeyValue> {
        let identity = Identity::of(pid as u32);
        let instance = match &identity {
            Some(Identity {
                port: Some(port), ..
            }) => format!("{}:{port}", self.host),
            _ => format!("{}/{pid}", self.host),
        };
        let name = identity.map_or_else(|| "unknown_service".into(), |who| who.name);
        let executable = fs::read_link(format!("/proc/{pid}/exe")).ok();
        let executable = executable.as_deref().and_then(Path::file_name).map(|name| {
            let name = name.to_string_lossy();
            name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned()
        });
        let mut attributes = vec![
            attribute("service.name", text(name)),
            attribute("service.instance.id", text(instance)),
            attribute("host.name", text(self.host.clone())),
            attribute("process.pid", Value::IntValue(pid.into())),
        ];
        attributes.extend(executable.map(|name| attribute("process.executable.name", text(name))));
        attributes
    }

    fn span(&mut self, kept: &Kept) -> Span {
        let row = &kept.row;
        let mut attributes = vec![
            attribute("thread.id", Value::IntValue(row.tid.into())),
            attribute("tailscope.weight", Value::DoubleValue(row.weight)),
        ];
        if let Some(id) = row.id {
            attributes.push(attribute("tailscope.id", Value::IntValue(id)));
        }
        if row.cpu >= 0 {
            attributes.push(attribute("tailscope.cpu", Value::IntValue(row.cpu.into())));
        }
        let mut running = row.wall_ns;
        for cause in self.measured.iter() {
            let ns = row.cause_ns[cause.index()];
            running -= ns;
            if ns > 0 {
                attributes.push(attribute(of_cause(cause), Value::IntValue(ns)));
            }
        }
        attributes.push(attribute("tailscope.running_ns", Value::IntValue(running)));
        let begin = row.start_ns.max(0) as u64;
        let id = self.next_id();
        let mut own = || [id.to_be_bytes(), self.next_id().to_be_bytes()].concat();
        let (trace_id, parent_span_id) = trace_of(row).unwrap_or_else(|| (own(), Vec::new()));
        Span {
            trace_id,
            parent_span_id,
            span_id: id.to_be_bytes().to_vec(),
            name: kept.name.to_string(),
            kind: SpanKind::Internal.into(),
            start_time_unix_nano: begin,
            end_time_unix_nano: begin.saturating_add(row.wall_ns.max(0) as u64),
            attributes,
            ..Span::default()
        }
    }

    /// Never 0, which would be no id.
    fn next_id(&mut self) -> u64 {
        self.made += 1;
        self.seed.hash_one(self.made).max(1)
    }
}

/// The trace that the request said it belongs to, and the span that sent it.
fn trace_of(row: &SpanRow) -> Option<(Vec<u8>, Vec<u8>)> {
    let of = |link: Link| row.links[link.index()].map(i64::to_be_bytes);
    let trace = [of(Link::TraceHigh)?, of(Link::TraceLow)?].concat();
    Some((trace, of(Link::TraceParent)?.to_vec()))
}

fn of_cause(cause: Cause) -> String {
    format!("tailscope.{}_ns", cause.name())
}

#[cfg(test)]
mod tests {
    use tailscope_trace::SpanRow;

    use super::*;

    fn kept(pid: i32) -> Kept {
        let mut row = SpanRow {
            start_ns: 1_000,
            pid,
            tid: pid + 1,
            wall_ns: 500,
            weight: 4.0,
            id: Some(-7),
            ..SpanRow::default()
        };
        row.cause_ns[Cause::Lock.index()] = 200;
        row.cause_ns[Cause::Fault.index()] = 100;
        Kept {
            row,
            name: "get".into(),
        }
    }

    #[test]
    fn a_process_is_an_instance_of_its_service() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let composer = Composer::new(CauseSet::default());
        let mine = std::process::id() as i32;
        let of = |pid: i32, key: &str| {
            let attributes = composer.resource(pid);
            let found = attributes.into_iter().find(|a| a.key == key)?;
            match found.value?.value? {
                Value::StringValue(text) => Some(text),
                _ => None,
            }
        };
        let program = std::env::current_exe().expect("ours");
        let name = program
            .file_name()
            .expect("a file")
            .to_string_lossy()
            .into_owned();
        assert_eq!(of(mine, "process.executable.name"), Some(name));
        let instance = of(mine, "service.instance.id").expect("there is one");
        assert!(
            instance.starts_with(&format!("{}:", composer.host)),
            "{instance}"
        );
        drop(listener);
        assert_eq!(of(-1, "service.name").as_deref(), Some("unknown_service"));
        assert_eq!(of(-1, "process.executable.name"), None);
    }

    #[test]
    fn a_request_of_a_trace_is_a_span_of_it() {
        let mut one = kept(1);
        for (link, value) in [
            (Link::TraceHigh, 1),
            (Link::TraceLow, -1),
            (Link::TraceParent, 7),
        ] {
            one.row.links[link.index()] = Some(value);
        }
        let request = Composer::new(CauseSet::default()).request(&[one]);
        let span = &request.resource_spans[0].scope_spans[0].spans[0];
        assert_eq!(
            span.trace_id,
            [1i64.to_be_bytes(), (-1i64).to_be_bytes()].concat()
        );
        assert_eq!(span.parent_span_id, 7i64.to_be_bytes());
        assert_eq!(span.span_id.len(), 8);
    }

    #[test]
    fn a_row_becomes_a_span_with_its_causes() {
        let measured = [Cause::Lock, Cause::Io].into_iter().collect();
        let request = Composer::new(measured).request(&[kept(1), kept(2), kept(1)]);
        assert_eq!(request.resource_spans.len(), 2);
        let spans = &request.resource_spans[0].scope_spans[0].spans;
        assert_eq!(spans.len(), 2);
        assert_ne!(spans[0].trace_id, spans[1].trace_id);
        let span = &spans[0];
        assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8));
        assert_eq!(
            (span.start_time_unix_nano, span.end_time_unix_nano),
            (1_000, 1_500)
        );
        let of = |key: &str| {
            let found = span.attributes.iter().find(|a| a.key == key)?;
            found.value.as_ref()?.value.clone()
        };
        assert_eq!(of("tailscope.lock_ns"), Some(Value::IntValue(200)));
        assert_eq!(of("tailscope.id"), Some(Value::IntValue(-7)));
        assert_eq!(of("tailscope.weight"), Some(Value::DoubleValue(4.0)));
        // What is not measured here is no cause, and stays in the time that it ran.
        assert_eq!(of("tailscope.fault_ns"), None);
        assert_eq!(of("tailscope.running_ns"), Some(Value::IntValue(300)));
    }
}
