//! What an agent is put together from, as its configuration says.

use std::net::TcpListener;
use std::sync::Arc;

use rustix::process::{Resource, getrlimit, setrlimit};
use tailscope_record::{
    CodeFor, Options, Process, Recorder, ResolvedProbes, SdkAddress, SpanSource,
};
use tailscope_trace::{CauseSet, LedgerWriter};

use super::{AgentError, system};
use crate::choice::{Facts, everybody};
use crate::config::Config;
use crate::ledger_worker::{Done, Job, LedgerWorker};
use crate::otlp::{self, Exporter};
use crate::scrape::Scrape;
use crate::scrape_requests::ScrapeRequests;

/// A recorder for this configuration, which writes nowhere yet. `takes_over`: where the one before
/// listens to the SDK.
pub(super) fn recorder(
    config: &Config,
    takes_over: Option<SdkAddress>,
) -> Result<Recorder, AgentError> {
    let options = options(config, takes_over);
    let here: Vec<Process> = everybody()
        .filter(|pid| {
            let facts = Facts::of(*pid);
            config.process.iter().any(|rule| rule.as_ref().fits(&facts))
        })
        .map(|pid| Process { pid })
        .collect();
    let resolved = SpanSource::probes(&options.spans)
        .enumerate()
        .map(|(number, source)| ResolvedProbes::find(number as u8, source, &here, None))
        .collect::<Result<_, _>>()?;
    let mut recorder = Recorder::start(&options, resolved)?;
    for exe in config.process.iter().filter_map(|rule| rule.as_ref().exe()) {
        recorder.attach_sdk(exe);
    }
    Ok(recorder)
}

/// What a recorder is asked for. `takes_over`: as for [`recorder`].
pub(super) fn options(config: &Config, takes_over: Option<SdkAddress>) -> Options {
    Options {
        spans: config.record.sources(),
        sample: config.record.sample,
        keep: config.record.policy(),
        stacks: config.record.stacks(),
        code_for: CodeFor::Ledgers,
        children: config.record.children,
        naming: *config.record.names.as_ref(),
        tls: *config.record.tls_names.as_ref(),
        traces: *config.record.traceparent.as_ref(),
        counters: config.record.counters(),
        tell_programs: true,
        takes_over,
        pauses: config.record.overhead().is_some(),
        ends_command: false,
        ledger: None,
        command: std::env::args().collect(),
    }
}

/// As many descriptors as this process may have. Each program with the SDK takes three of them, and
/// services begin with 1,024.
pub(super) fn allow_descriptors() {
    let mut limits = getrlimit(Resource::Nofile);
    limits.current = limits.maximum;
    // With fewer it records fewer.
    let _ = setrlimit(Resource::Nofile, limits);
}

/// Starts a ledger at once, when nothing is recorded yet. What else the ledger worker has done goes
/// to `others`.
pub(super) fn begin_now(
    ledger_worker: &LedgerWorker,
    recorder: &Recorder,
    others: &mut Vec<Done>,
) -> Result<LedgerWriter, AgentError> {
    ledger_worker.give(Job::Begin(Box::new(recorder.next_ledger())));
    loop {
        match ledger_worker.wait() {
            Some(Done::Begun(begun)) => {
                return begun.map(|ledger| *ledger).map_err(AgentError::Begin);
            }
            Some(done) => others.push(done),
            None => return Err(AgentError::Begin("its thread has ended".into())),
        }
    }
}

/// Where `/metrics` is served: the socket that systemd passed, or a new one at the address that the
/// configuration has. `None`: it is not served.
pub(super) fn listener(
    config: &Config,
    passed: Option<&TcpListener>,
) -> Result<Option<TcpListener>, AgentError> {
    let Some(address) = config.metrics.listen else {
        return Ok(None);
    };
    passed
        .map_or_else(|| TcpListener::bind(address), TcpListener::try_clone)
        .map(Some)
        .map_err(|source| AgentError::Listen { address, source })
}

pub(super) fn scrape(
    listener: Option<TcpListener>,
    scrape_requests: &Arc<ScrapeRequests>,
) -> Result<Option<Scrape>, AgentError> {
    let start = |listener| Scrape::start(listener, Arc::clone(scrape_requests));
    listener
        .map(start)
        .transpose()
        .map_err(system("start a thread"))
}

pub(super) fn exporter(
    config: &Config,
    measured: CauseSet,
    counts: &Arc<otlp::Counts>,
) -> Result<Option<Exporter>, AgentError> {
    let Some(wanted) = &config.otlp else {
        return Ok(None);
    };
    let tls = otlp::tls(wanted)?;
    Exporter::start(wanted, tls, measured, Arc::clone(counts))
        .map(Some)
        .map_err(system("start a thread"))
}
