//! The figures of one moment, as the picture and the JSON show them.

use std::time::Instant;

use serde_json::{Map, Value, json};
use tailscope_record::{Breakdown, Code, Live, Tally};
use tailscope_trace::{Cause, CauseSet};

use crate::console::in_one_line;

/// What all kinds of spans were like.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// How many seconds the recent figures are of, and how many since the begin.
    pub seconds: [f64; 2],
    /// In the order in which they came.
    pub kinds: Vec<Kind>,
}

/// What the spans of one name were like.
#[derive(Debug, Clone)]
pub struct Kind {
    /// Their name, with nothing in it that a terminal obeys.
    pub name: String,
    /// Of the last seconds, and since the begin.
    pub figures: [Figures; 2],
    /// The functions in which the slow spans of the last seconds were.
    pub code: Vec<Code>,
}

/// Which figures are shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Period {
    /// Of the last seconds.
    #[default]
    Recent,
    /// Since the begin.
    Total,
}

/// How long spans took, and what that time is made of.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Spans, by their weights.
    pub spans: u64,
    /// Spans a second.
    pub rate: f64,
    /// p50, p99 and p99.9 in ns; `None` without spans.
    pub quantiles: Option<[u64; 3]>,
    /// All spans.
    pub all: Breakdown,
    /// Those at or above p99.
    pub tail: Breakdown,
}

impl Figures {
    fn of(tally: &Tally, seconds: f64) -> Self {
        let quantile = |q| tally.quantile(q);
        Self {
            spans: tally.spans(),
            rate: if seconds > 0.0 {
                tally.spans() as f64 / seconds
            } else {
                0.0
            },
            quantiles: quantile(0.5)
                .zip(quantile(0.99))
                .zip(quantile(0.999))
                .map(|((p50, p99), p999)| [p50, p99, p999]),
            all: tally.whole(),
            tail: tally.tail(0.99),
        }
    }

    fn json(&self, measured: CauseSet) -> Value {
        let [p50, p99, p999] = self
            .quantiles
            .map_or([None; 3], |quantiles| quantiles.map(Some));
        json!({
            "spans": self.spans,
            "rate": self.rate,
            "p50_ns": p50,
            "p99_ns": p99,
            "p999_ns": p999,
            "all": breakdown_json(&self.all, measured),
            "tail": breakdown_json(&self.tail, measured),
        })
    }
}

fn breakdown_json(breakdown: &Breakdown, measured: CauseSet) -> Value {
    let mut means: Map<String, Value> = Cause::ALL
        .iter()
        .map(|cause| {
            let sum_ns = breakdown.cause_ns[cause.index()];
            let mean = measured.contains(*cause).then(|| mean(sum_ns, breakdown));
            (format!("{cause}_ns"), mean.into())
        })
        .collect();
    means.insert(
        "running_ns".into(),
        mean(breakdown.running_ns(), breakdown).into(),
    );
    means.insert("wall_ns".into(), mean(breakdown.wall_ns, breakdown).into());
    means.insert("spans".into(), breakdown.spans.into());
    Value::Object(means)
}

fn function_json(code: &Code) -> Value {
    json!({
        "cause": code.cause.map_or("running", Cause::name),
        "functions": code.functions,
        "ns": code.ns,
    })
}

/// What a sum is of one span, in ns.
pub fn mean(sum_ns: f64, breakdown: &Breakdown) -> f64 {
    if breakdown.spans > 0.0 {
        sum_ns / breakdown.spans
    } else {
        0.0
    }
}

impl Snapshot {
    /// Takes it.
    pub fn take(live: &Live) -> Self {
        let now = Instant::now();
        let seconds = [live.window(now), live.age(now)].map(|time| time.as_secs_f64());
        let kinds = live.kinds().iter().map(|kind| Kind {
            name: in_one_line(kind.name()),
            figures: [
                Figures::of(&kind.recent(), seconds[0]),
                Figures::of(&kind.total(), seconds[1]),
            ],
            code: kind.code().to_vec(),
        });
        Self {
            seconds,
            kinds: kinds.collect(),
        }
    }

    /// For machines: means a span in ns, `null` for what is unknown, as all causes are that are not
    /// `measured` here. `stacks`: with functions.
    pub fn json(&self, lost: u64, measured: CauseSet, stacks: bool) -> Value {
        let kinds = self.kinds.iter().map(|kind| {
            let mut value = kind.of(Period::Recent).json(measured);
            value["name"] = kind.name.clone().into();
            value["since_begin"] = kind.of(Period::Total).json(measured);
            if stacks {
                value["functions"] = kind.code.iter().map(function_json).collect();
            }
            value
        });
        json!({
            "seconds": self.seconds[Period::Recent as usize],
            "seconds_since_begin": self.seconds[Period::Total as usize],
            "lost": lost,
            "kinds": kinds.collect::<Vec<_>>(),
        })
    }
}

impl Kind {
    /// The figures of a period.
    pub fn of(&self, period: Period) -> &Figures {
        &self.figures[period as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_measured_here_is_null_for_machines() {
        let figures = Figures {
            all: Breakdown {
                spans: 2.0,
                wall_ns: 10.0,
                ..Breakdown::default()
            },
            ..Figures::default()
        };
        let kind = Kind {
            name: "get".into(),
            figures: [figures.clone(), figures],
            code: vec![Code {
                cause: Some(Cause::Lock),
                functions: vec!["store".into(), "main".into()],
                ns: 7.0,
            }],
        };
        let snapshot = Snapshot {
            kinds: vec![kind],
            ..Snapshot::default()
        };
        let measured = CauseSet::ALL.without(Cause::Steal);
        assert!(
            snapshot.json(0, measured, false)["kinds"][0]
                .get("functions")
                .is_none()
        );
        let said = snapshot.json(0, measured, true);
        assert_eq!(
            said["kinds"][0]["functions"],
            json!([{"cause": "lock", "functions": ["store", "main"], "ns": 7.0}])
        );
        let all = &said["kinds"][0]["since_begin"]["all"];
        assert_eq!(
            (&all["steal_ns"], &all["lock_ns"], &all["running_ns"]),
            (&Value::Null, &json!(0.0), &json!(5.0))
        );
    }
}
