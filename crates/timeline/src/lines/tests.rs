use std::collections::BTreeSet;

use tailscope_signals::event::{EVENT_BYTES, abi};

use super::*;
use crate::story::tests::events::{Raw, raw, switch, trace};

/// An event of each kind.
fn all_kinds() -> Vec<Raw> {
    let mut all: Vec<Raw> = (1..abi::TL_KINDS)
        .map(|kind| raw(1, kind.into(), 7, kind))
        .collect();
    all.iter_mut().for_each(|event| event.z = 7);
    all
}

fn objects(trace: &Trace, wanted: &Wanted) -> Vec<serde_json::Map<String, Value>> {
    lines(trace, wanted)
        .map(|line| match serde_json::to_value(&line) {
            Ok(Value::Object(object)) => object,
            other => panic!("{other:?}"),
        })
        .collect()
}

fn is_of(value: &Value, kind: &Value) -> bool {
    let one = |kind: &str| match kind {
        "integer" => value.is_u64() || value.is_i64(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("{other}"),
    };
    match kind {
        Value::String(kind) => one(kind),
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).any(one),
        other => panic!("{other}"),
    }
}

#[test]
fn every_kind_of_event_is_a_line_of_the_schema() {
    let trace = trace(&all_kinds(), |_| ());
    let objects = objects(&trace, &Wanted::default());
    assert_eq!(objects.len() as u32, abi::TL_KINDS - 1);
    let schema = schema();
    let known: Vec<&Value> = schema["oneOf"].as_array().expect("a list").iter().collect();
    for object in &objects {
        let of = known.iter().find(|of| of["title"] == object["event"]);
        let properties = of.expect("in the schema")["properties"]
            .as_object()
            .expect("an object");
        let keys =
            |of: &serde_json::Map<String, Value>| of.keys().cloned().collect::<BTreeSet<_>>();
        assert_eq!(keys(object), keys(properties), "{object:?}");
        for (name, property) in properties.iter().filter(|(name, _)| *name != "event") {
            assert!(
                is_of(&object[name], &property["type"]),
                "{name}: {object:?}"
            );
        }
    }
    // And the schema has no event that none of them is.
    let seen: BTreeSet<&str> = objects.iter().filter_map(|o| o["event"].as_str()).collect();
    assert_eq!(seen, names().collect::<BTreeSet<_>>());
}

#[test]
fn events_are_cut_by_time_process_and_name() {
    let trace = trace(
        &[
            switch(1, 10, 7, 1, 99),
            switch(1, 20, 99, 0, 7),
            raw(1, 30, 99, abi::TL_FAULT_OUT),
        ],
        |_| (),
    );
    let at = |wanted: Wanted| -> Vec<u64> {
        let objects = objects(&trace, &wanted);
        objects.iter().filter_map(|o| o["at_ns"].as_u64()).collect()
    };
    assert_eq!(at(Wanted::default()), [10_000, 20_000, 30_000]);
    let from_to = Wanted {
        from_ns: Some(20_000),
        to_ns: Some(30_000),
        ..Wanted::default()
    };
    assert_eq!(at(from_to), [20_000]);
    let of_server = Wanted {
        process: Some(7),
        ..Wanted::default()
    };
    assert_eq!(at(of_server), [10_000, 20_000]);
    let faults = Wanted {
        names: vec!["fault_out".into()],
        ..Wanted::default()
    };
    assert_eq!(at(faults), [30_000]);
}

#[test]
fn the_keys_of_a_line_lead_with_its_time_and_its_name() {
    let trace = trace(&[switch(1, 10, 7, 1, 0)], |_| ());
    let line = lines(&trace, &Wanted::default()).next().expect("one");
    let text = serde_json::to_string(&line).expect("JSON");
    assert_eq!(
        text,
        r#"{"at_ns":10000,"event":"switch","cpu":1,"tid":7,"thread":"server/worker","pid":7,"state":1,"preempted":false,"real_time":false,"to_tid":0,"to_pid":0,"to_thread":null}"#
    );
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_a_line_or_none(bytes: [u8; EVENT_BYTES]) {
        let trace = trace(&[], |_| ());
        if let Some(event) = Event::parse(&bytes) {
            proptest::prop_assert!(line(&trace, 0, &event).is_some());
        }
    }
}
