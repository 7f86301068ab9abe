//! The figures of an agent, in Prometheus' text format.

mod overhead;
mod page;

use std::collections::BTreeMap;

use tailscope_record::Kind;
use tailscope_trace::Overhead;

use crate::archive::Holding;
use crate::otlp::Exported;
use crate::rotation::Reason;
use page::Page;

/// What a scrape is told. Times in ns; counts are since the start of the agent.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Spans that were metered to their end, kept or not.
    pub(crate) spans: u64,
    /// Rows of them that were kept.
    pub(crate) rows: u64,
    /// Bytes of sealed files.
    pub(crate) bytes: u64,
    /// By the place that lost them.
    pub(crate) lost: BTreeMap<String, u64>,
    pub(crate) processes: u64,
    pub(crate) holding: Holding,
    pub(crate) turns: [u64; Reason::ALL.len()],
    pub(crate) reloads: u64,
    pub(crate) refused_reloads: u64,
    pub(crate) config_is_applied: bool,
    pub(crate) write_errors: u64,
    /// Where the configuration has a budget.
    pub(crate) overhead: Option<Overhead>,
    pub(crate) exported: Option<Exported>,
    pub(crate) kinds: Vec<KindFigures>,
    pub(crate) by_process: Vec<(ProcessLabels, KindFigures)>,
    pub(crate) own: Own,
}

/// A span's name, and what its latest ones and all of them took.
#[derive(Debug, Default)]
pub(crate) struct KindFigures {
    pub(crate) name: String,
    /// Whose they are, where another user has spans of the same name.
    pub(crate) user: Option<String>,
    /// Of the last seconds, where there were any.
    pub(crate) p50_ns: Option<u64>,
    pub(crate) p99_ns: Option<u64>,
    pub(crate) spans: u64,
    pub(crate) wall_ns: f64,
}

/// Which process.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct ProcessLabels {
    pub(crate) process: String,
    /// Empty where it listens on none.
    pub(crate) port: String,
    /// Where it was asked for.
    pub(crate) pid: Option<String>,
}

impl ProcessLabels {
    fn pairs(&self) -> Vec<(&'static str, &str)> {
        let pid = self.pid.as_deref().map(|pid| ("pid", pid));
        let always = [("process", self.process.as_str()), ("port", &self.port)];
        always.into_iter().chain(pid).collect()
    }
}

impl KindFigures {
    /// Of the kind at this place, which is called so. Who came first has a name alone.
    pub(crate) fn of(all: &[Kind], place: usize, name: &str) -> Self {
        let kind = &all[place];
        let is_second = all[..place].iter().any(|other| other.name() == kind.name());
        let user = || {
            kind.user()
                .map_or("several".into(), |user| user.to_string())
        };
        let (recent, total) = (kind.recent(), kind.total());
        Self {
            name: name.to_owned(),
            user: is_second.then(user),
            p50_ns: recent.quantile(0.5),
            p99_ns: recent.quantile(0.99),
            spans: total.spans(),
            wall_ns: total.whole().wall_ns,
        }
    }
}

/// What the agent itself uses.
#[derive(Debug, Default)]
pub(crate) struct Own {
    pub(crate) cpu_ns: u64,
    pub(crate) resident_bytes: u64,
    pub(crate) descriptors: u64,
    pub(crate) threads: u64,
    pub(crate) started_ns: i64,
}

const SECOND: f64 = 1e9;

impl Figures {
    /// As text.
    pub(crate) fn render(&self) -> String {
        let mut page = Page::default();
        let version = env!("CARGO_PKG_VERSION");
        page.family("tailscope_build_info", "gauge", "The agent's version.")
            .labelled("", &[("version", version)], 1);
        self.tell_rows(&mut page);
        page.gauge("tailscope_processes", "Watched processes.", self.processes);
        self.tell_ledgers(&mut page);
        self.tell_configuration(&mut page);
        if let Some(overhead) = &self.overhead {
            overhead::tell(overhead, &mut page);
        }
        self.tell_durations(&mut page);
        if let Some(exported) = &self.exported {
            tell_exported(exported, &mut page);
        }
        self.own.tell(&mut page);
        page.into_text()
    }

    /// How many spans there were, and what became of their rows.
    fn tell_rows(&self, page: &mut Page) {
        page.counter(
            "tailscope_spans_total",
            "Metered spans that ended, whether their rows were kept or not.",
            self.spans,
        );
        page.counter("tailscope_rows_total", "Rows that were kept.", self.rows);
        page.counter(
            "tailscope_written_bytes_total",
            "Bytes of sealed files.",
            self.bytes,
        );
        page.counter(
            "tailscope_write_errors_total",
            "Failures to write a ledger; its lost rows are in tailscope_lost_total.",
            self.write_errors,
        );
        page.family(
            "tailscope_lost_total",
            "counter",
            "Lost rows and measurements, by place.",
        );
        for (place, count) in &self.lost {
            page.labelled("", &[("place", place)], count);
        }
    }

    /// The ledgers on disk, and why those before ended.
    fn tell_ledgers(&self, page: &mut Page) {
        page.gauge(
            "tailscope_ledgers",
            "Ledgers on disk, including the current one.",
            self.holding.ledgers,
        );
        page.gauge(
            "tailscope_ledgers_bytes",
            "Size of the ledgers on disk, in bytes.",
            self.holding.bytes,
        );
        page.counter(
            "tailscope_ledgers_removed_total",
            "Ledgers removed to stay within the quota.",
            self.holding.removed,
        );
        page.family(
            "tailscope_ledgers_ended_total",
            "counter",
            "Ledgers that ended, by reason.",
        );
        for reason in Reason::ALL {
            page.labelled(
                "",
                &[("reason", &reason.to_string())],
                self.turns[reason.index()],
            );
        }
    }

    /// Whether the agent does what its configuration says by now.
    fn tell_configuration(&self, page: &mut Page) {
        page.family(
            "tailscope_config_reloads_total",
            "counter",
            "Reloads of the configuration, by result.",
        );
        page.labelled("", &[("result", "applied")], self.reloads);
        page.labelled("", &[("result", "refused")], self.refused_reloads);
        page.gauge(
            "tailscope_config_last_reload_successful",
            "1 if the file was valid when it was last read, else 0.",
            u8::from(self.config_is_applied),
        );
    }

    /// How long spans took, by their names, and by their processes too.
    fn tell_durations(&self, page: &mut Page) {
        page.family(
            "tailscope_span_duration_seconds",
            "summary",
            "Wall times by span name: quantiles of the last 8 to 10 seconds; weighted sum and count of all spans.",
        );
        for kind in &self.kinds {
            kind.tell(&[], page);
        }
        page.family(
            "tailscope_process_span_duration_seconds",
            "summary",
            "The same by process (name and lowest listening TCP port) and span name.",
        );
        for (labels, kind) in &self.by_process {
            kind.tell(&labels.pairs(), page);
        }
    }
}

impl KindFigures {
    /// The samples of a summary, with these labels before the span's name.
    fn tell(&self, labels: &[(&str, &str)], page: &mut Page) {
        let name = ("span", self.name.as_str());
        let user = self.user.as_deref().map(|user| ("user", user));
        let mut labels = [labels, &[name]].concat();
        labels.extend(user);
        for (quantile, ns) in [("0.5", self.p50_ns), ("0.99", self.p99_ns)] {
            let seconds = ns.map_or(f64::NAN, |ns| ns as f64 / SECOND);
            let value = if seconds.is_nan() {
                "NaN".into()
            } else {
                seconds.to_string()
            };
            labels.push(("quantile", quantile));
            page.labelled("", &labels, value);
            labels.pop();
        }
        page.labelled("_sum", &labels, self.wall_ns / SECOND);
        page.labelled("_count", &labels, self.spans);
    }
}

/// What became of the spans that were to be sent to a collector.
fn tell_exported(exported: &Exported, page: &mut Page) {
    page.counter(
        "tailscope_otlp_spans_total",
        "Spans that the collector accepted.",
        exported.sent,
    );
    page.family(
        "tailscope_otlp_dropped_total",
        "counter",
        "Kept spans that were not exported, by reason; the ledger has them.",
    );
    for (reason, count) in [
        ("rate", exported.over_rate),
        ("queue", exported.queue_full),
        ("collector", exported.failed),
        ("rejected", exported.rejected),
    ] {
        page.labelled("", &[("reason", reason)], count);
    }
    page.counter(
        "tailscope_otlp_failures_total",
        "Requests that the collector refused or did not answer.",
        exported.failures,
    );
}

impl Own {
    /// By the names that Prometheus has for every program.
    fn tell(&self, page: &mut Page) {
        page.counter(
            "process_cpu_seconds_total",
            "CPU time of the agent.",
            self.cpu_ns as f64 / SECOND,
        );
        page.gauge(
            "process_resident_memory_bytes",
            "Resident memory of the agent.",
            self.resident_bytes,
        );
        page.gauge(
            "process_open_fds",
            "Open file descriptors of the agent.",
            self.descriptors,
        );
        page.gauge("process_threads", "Threads of the agent.", self.threads);
        page.gauge(
            "process_start_time_seconds",
            "Start of the agent, in s since the Unix epoch.",
            self.started_ns as f64 / SECOND,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_names_stay_inside_their_quotes() {
        let figures = Figures {
            kinds: vec![KindFigures {
                name: "a\"} 1\n\\evil".into(),
                p50_ns: Some(1_500),
                ..KindFigures::default()
            }],
            ..Figures::default()
        };
        let text = figures.render();
        assert!(
            text.contains("{span=\"a\\\"} 1\\n\\\\evil\",quantile=\"0.5\"} 0.0000015\n"),
            "{text}"
        );
        assert!(text.contains("quantile=\"0.99\"} NaN\n"));
    }

    #[test]
    fn figures_by_process_have_their_labels() {
        let who = ProcessLabels {
            process: "redis-server".into(),
            port: "6379".into(),
            pid: Some("7".into()),
        };
        let kind = KindFigures {
            name: "get".into(),
            spans: 5,
            ..KindFigures::default()
        };
        let figures = Figures {
            by_process: vec![(who, kind)],
            ..Figures::default()
        };
        let text = figures.render();
        let labels = "process=\"redis-server\",port=\"6379\",pid=\"7\",span=\"get\"";
        let name = "tailscope_process_span_duration_seconds";
        assert!(
            text.contains(&format!("{name}_count{{{labels}}} 5\n")),
            "{text}"
        );
        assert!(text.contains(&format!("{name}{{{labels},quantile=\"0.5\"}} NaN\n")));
    }

    #[test]
    fn every_family_has_its_help_and_type_once() {
        let figures = Figures {
            exported: Some(Exported::default()),
            lost: BTreeMap::from([("ring_full".into(), 7)]),
            ..Figures::default()
        };
        let text = figures.render();
        let mut known = std::collections::HashSet::new();
        for line in text.lines() {
            match line.strip_prefix("# TYPE ") {
                Some(rest) => assert!(
                    known.insert(rest.split(' ').next().expect("a name")),
                    "{line}"
                ),
                None if line.starts_with('#') => {}
                None => {
                    let name = line.split(['{', ' ']).next().expect("a name");
                    let base = name.trim_end_matches("_sum").trim_end_matches("_count");
                    assert!(known.contains(base), "{line}");
                }
            }
        }
        assert!(text.contains("tailscope_lost_total{place=\"ring_full\"} 7\n"));
    }
}
