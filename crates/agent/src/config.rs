//! The configuration: TOML that is checked as a whole before anything is done with it.

mod problem;
mod values;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use tailscope_counters::{Event, Pmus};
use tailscope_record::{MOST_STACK_RATE, Naming, Policy, SpanSource, WantedError, wanted_events};
use toml::Spanned;

use crate::choice::Rule;
use crate::otlp::trust::of_file;
pub use problem::Problem;
use problem::{in_words, place};

/// All that an agent is told.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Which processes are recorded: those that any of these rules fits.
    #[serde(default)]
    pub(crate) process: Vec<Spanned<Rule>>,
    #[serde(default)]
    pub(crate) record: Recording,
    #[serde(default)]
    pub(crate) ledger: Ledger,
    #[serde(default)]
    pub(crate) metrics: Metrics,
    pub(crate) otlp: Option<Otlp>,
}

/// What is recorded of them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Recording {
    /// Each with its place, for one of several that is wrong. Empty: what suits most programs.
    spans: Spanned<Vec<Spanned<String>>>,
    #[serde(deserialize_with = "values::share")]
    pub(crate) sample: f64,
    #[serde(deserialize_with = "values::maybe_share")]
    pub(crate) keep: Option<f64>,
    #[serde(deserialize_with = "values::maybe_percentile")]
    pub(crate) tail: Option<f64>,
    #[serde(deserialize_with = "values::maybe_byte_rate")]
    pub(crate) budget: Option<u64>,
    pub(crate) children: bool,
    /// By which protocol spans of the source `request` are named, as `--name` has it.
    #[serde(deserialize_with = "values::naming")]
    pub(crate) names: Spanned<Naming>,
    /// Whether those that come over TLS are named, too, as `--tls-names` does.
    pub(crate) tls_names: Spanned<bool>,
    /// Whether their trace is kept.
    pub(crate) traceparent: Spanned<bool>,
    /// Samples of stacks a second of each CPU, as `--stacks` has it.
    stacks: Option<Spanned<u32>>,
    /// By which share the programs may be slower.
    #[serde(deserialize_with = "values::overhead")]
    overhead: Option<Spanned<f64>>,
    /// Hardware counters of the SDK's spans, each as `--counters` has it.
    counters: Spanned<Vec<Spanned<String>>>,
}

/// Where ledgers are, and when one ends.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Ledger {
    pub(crate) folder: Spanned<PathBuf>,
    #[serde(deserialize_with = "values::spanned_bytes")]
    pub(crate) rotate_size: Spanned<u64>,
    #[serde(deserialize_with = "values::spanned_duration")]
    pub(crate) rotate_age: Spanned<Duration>,
    #[serde(deserialize_with = "values::spanned_bytes")]
    pub(crate) quota: Spanned<u64>,
}

/// Where Prometheus finds the figures.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Metrics {
    #[serde(deserialize_with = "values::listen")]
    pub(crate) listen: Option<SocketAddr>,
    /// Whether figures by process have a label with its number, which grows without end.
    pub(crate) pid: bool,
}

/// Where kept spans are sent to.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Otlp {
    #[serde(deserialize_with = "values::endpoint")]
    pub(crate) endpoint: String,
    /// Whom the certificate of an https:// endpoint must be signed by; `None`: whom the system trusts.
    pub(crate) ca_file: Option<Spanned<PathBuf>>,
    #[serde(default, deserialize_with = "values::headers")]
    pub(crate) headers: BTreeMap<String, String>,
    #[serde(default = "usual_rate", deserialize_with = "values::rate")]
    pub(crate) spans_per_second: u32,
    #[serde(default = "usual_queue", deserialize_with = "values::queue")]
    pub(crate) queue: usize,
    #[serde(default = "usual_timeout", deserialize_with = "values::duration")]
    pub(crate) timeout: Duration,
}

fn usual_rate() -> u32 {
    1000
}

fn usual_queue() -> usize {
    8192
}

fn usual_timeout() -> Duration {
    Duration::from_secs(5)
}

/// A default has no place in the file.
fn nowhere<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

impl Default for Recording {
    fn default() -> Self {
        Self {
            spans: nowhere(Vec::new()),
            sample: 1.0,
            keep: None,
            tail: None,
            budget: None,
            children: true,
            names: nowhere(Naming::Auto),
            tls_names: nowhere(false),
            traceparent: nowhere(false),
            stacks: None,
            overhead: None,
            counters: nowhere(Vec::new()),
        }
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            folder: nowhere("/var/lib/tailscope".into()),
            rotate_size: nowhere(256_000_000),
            rotate_age: nowhere(Duration::from_secs(3600)),
            quota: nowhere(10_000_000_000),
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 9745))),
            pid: false,
        }
    }
}

impl Otlp {
    pub(crate) fn is_encrypted(&self) -> bool {
        self.endpoint.starts_with("https://")
    }
}

impl Recording {
    /// Where spans come from. Those that are none were told of when it was read.
    pub(crate) fn sources(&self) -> Vec<SpanSource> {
        let texts = self.spans.as_ref().iter();
        if texts.len() == 0 {
            return vec![SpanSource::usual(self.sample)];
        }
        texts
            .filter_map(|text| text.as_ref().parse().ok())
            .collect()
    }

    /// The events that are counted. Those that are none were told of when it was read.
    pub(crate) fn counters(&self) -> Vec<Event> {
        self.wanted().unwrap_or_default()
    }

    /// Samples of stacks a second of each CPU, if they are taken.
    pub(crate) fn stacks(&self) -> Option<u32> {
        self.stacks.as_ref().map(|rate| *rate.as_ref())
    }

    /// By which share the programs may be slower, if that has a bound.
    pub(crate) fn overhead(&self) -> Option<f64> {
        self.overhead.as_ref().map(|share| *share.as_ref())
    }

    fn wanted(&self) -> Result<Vec<Event>, WantedError> {
        let texts = self.counters.as_ref().iter();
        let texts: Vec<&str> = texts.map(|text| text.as_ref().as_str()).collect();
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        wanted_events(&texts.join(","), &Pmus::here())
    }

    pub(crate) fn policy(&self) -> Policy {
        let usual = if self.tail.is_some() { 0.01 } else { 1.0 };
        Policy {
            others: self.keep.unwrap_or(usual),
            tail: self.tail,
            budget: self.budget,
        }
    }
}

impl Config {
    /// By which share the programs may be slower, if that has a bound.
    #[must_use]
    pub fn overhead(&self) -> Option<f64> {
        self.record.overhead()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it, and on which line.
    pub fn read(path: &Path) -> Result<Self, Problem> {
        let text = fs::read_to_string(path).map_err(|e| Problem {
            path: path.to_owned(),
            at: None,
            what: format!("can't read it: {e}"),
        })?;
        Self::parse(&text).map_err(|(at, what)| Problem {
            path: path.to_owned(),
            at: at.map(|at| place(&text, at)),
            what,
        })
    }

    /// Reads a text. The error says at which byte.
    pub(crate) fn parse(text: &str) -> Result<Self, Flaw> {
        let config: Self = toml::from_str(text)
            .map_err(|e| (e.span().map(|span| span.start), in_words(e.message())))?;
        config.check()?;
        Ok(config)
    }

    /// What no value shows alone.
    fn check(&self) -> Result<(), Flaw> {
        if self.process.is_empty() {
            let what =
                "no [[process]] selects what to record; add [[process]] with name = \"memcached\"";
            return Err((None, what.into()));
        }
        for rule in &self.process {
            rule.as_ref().check().map_err(|what| at(rule, what))?;
        }
        self.record.check()?;
        if let Some(otlp) = &self.otlp {
            otlp.check()?;
        }
        self.ledger.check()
    }
}

/// What is wrong with a text, and at which of its bytes if it is one of them.
type Flaw = (Option<usize>, String);

/// What is wrong with a value, at its place. A default has none.
fn at<T>(value: &Spanned<T>, what: impl Into<String>) -> Flaw {
    let span = value.span();
    ((!span.is_empty()).then_some(span.start), what.into())
}

impl Recording {
    /// Whether its sources and its counters exist, and go together.
    fn check(&self) -> Result<(), Flaw> {
        let spans = &self.spans;
        if spans.as_ref().is_empty() && !spans.span().is_empty() {
            return Err(at(spans, "spans is empty; leave it out for request"));
        }
        for text in spans.as_ref() {
            SpanSource::from_str(text.as_ref()).map_err(|e| at(text, e.to_string()))?;
        }
        SpanSource::check(&self.sources()).map_err(|e| at(spans, e.to_string()))?;
        let follows = self.sources().contains(&SpanSource::Request);
        if follows && self.sample < 1.0 {
            let why =
                "request can't be sampled; leave spans out for syscall:ready..send, or use keep";
            return Err(at(spans, why));
        }
        if !follows {
            let (names, tls, traces) = (&self.names, &self.tls_names, &self.traceparent);
            let needs = |what: &str| format!("{what} needs the source request, without sample");
            if *names.as_ref() != Naming::Auto {
                return Err(at(names, needs("names")));
            }
            if *tls.as_ref() {
                return Err(at(tls, needs("tls_names")));
            }
            if *traces.as_ref() {
                return Err(at(traces, needs("traceparent")));
            }
        }
        if *self.tls_names.as_ref() && *self.names.as_ref() == Naming::None {
            let why = "tls_names has no effect with names = \"none\"";
            return Err(at(&self.tls_names, why));
        }
        if let Some(overhead) = &self.overhead
            && self.sources().contains(&SpanSource::Sdk)
        {
            return Err(at(overhead, "overhead is not for SDK spans; use sample"));
        }
        if let Some(stacks) = &self.stacks {
            if !(1..=MOST_STACK_RATE).contains(stacks.as_ref()) {
                let what =
                    format!("stacks is 1 to {MOST_STACK_RATE} samples a second; 99 is usual");
                return Err(at(stacks, what));
            }
            if self.overhead.is_some() {
                let why = "stacks are not recorded within an overhead; leave out one of the two";
                return Err(at(stacks, why));
            }
        }
        let counters = &self.counters;
        for text in counters.as_ref() {
            Event::parse_list(text.as_ref(), &Pmus::here()).map_err(|e| at(text, e.to_string()))?;
        }
        let events = self.wanted();
        let events = events.map_err(|e| at(counters, e.to_string()))?;
        if !events.is_empty() && !self.sources().contains(&SpanSource::Sdk) {
            return Err(at(
                counters,
                "counters need SDK spans; add spans = [\"sdk\"]",
            ));
        }
        Ok(())
    }
}

impl Otlp {
    /// Whether its certificates have a use, and can be read.
    fn check(&self) -> Result<(), Flaw> {
        let Some(file) = &self.ca_file else {
            return Ok(());
        };
        if !self.is_encrypted() {
            return Err(at(
                file,
                "ca_file has no effect: endpoint does not start with https://",
            ));
        }
        of_file(file.as_ref()).map_err(|e| at(file, e.to_string()))?;
        Ok(())
    }
}

impl Ledger {
    /// Whether a ledger has a folder and a length, and the quota holds two of them.
    fn check(&self) -> Result<(), Flaw> {
        let Self {
            folder,
            rotate_size,
            rotate_age,
            quota,
        } = self;
        if !folder.as_ref().is_absolute() {
            return Err(at(folder, "folder is relative; use an absolute path"));
        }
        if *rotate_size.as_ref() < 1_000_000 {
            return Err(at(rotate_size, "rotate_size is less than 1MB; use more"));
        }
        if *rotate_age.as_ref() < Duration::from_secs(1) {
            return Err(at(rotate_age, "rotate_age is less than 1s; use more"));
        }
        if *quota.as_ref() / 2 < *rotate_size.as_ref() {
            let place = if quota.span().is_empty() {
                rotate_size
            } else {
                quota
            };
            return Err(at(
                place,
                format!(
                    "quota ({} bytes) must hold two ledgers of rotate_size ({} bytes)",
                    quota.as_ref(),
                    rotate_size.as_ref()
                ),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
