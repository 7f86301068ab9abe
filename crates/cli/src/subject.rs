//! A recording of `record` or `top`, from its begin to its end.

mod args;
mod resting;

use std::collections::HashSet;
use std::env;
use std::ffi::OsString;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Error, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tailscope_counters::{Event, Pmus};
use tailscope_kernel::{LoadError, PidNamespace, missing_capabilities};
use tailscope_process::MappedSizes;
use tailscope_record::{
    CodeFor, LaunchError, Launched, Listener, Options, Place, Policy, Prints, Process, Progress,
    RecordError, Recorder, ResolvedProbes, SpanSource, wanted_events,
};
use tailscope_signals::patience::Patience;
use tailscope_trace::may_begin;

use crate::failure::Failure;
pub use args::Subject;
pub use resting::Resting;

/// A flag that a signal sets: end properly.
pub fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// What a ledger gets besides rows; a recording for a screen wants none of it.
#[derive(Default)]
pub struct Kept<'a> {
    /// Where the ledger is written.
    pub ledger: Option<Place>,
    /// Bytes a second at most.
    pub budget: Option<u64>,
    /// Hardware counters, as the option names them.
    pub counters: Option<&'a str>,
    /// The trace ids of requests.
    pub traces: bool,
    /// The stacks of threads with an open span: samples a second of each CPU.
    pub stacks: Option<u32>,
    /// Whether it is recorded in phases.
    pub pauses: bool,
}

/// A recording that has begun.
pub struct Session {
    /// It watches all that were named.
    pub recorder: Recorder,
    /// What it is asked for.
    pub options: Options,
    launched: Option<Launched>,
}

impl Session {
    /// Finds the processes, starts the command, and begins.
    pub fn begin(args: &Subject, kept: Kept<'_>, prints: Prints) -> Result<Self> {
        let counters = kept
            .counters
            .map_or(Ok(Vec::new()), |list| wanted_events(list, &Pmus::here()));
        let counters = counters.map_err(Failure::usage)?;
        let processes = targets(&args.pids, &args.command, args.no_children, "record")?;
        let mut launched = launch(&args.command, prints)?;
        let spans = sources(args, &processes, launched.as_ref())?;
        if !counters.is_empty() && !spans.contains(&SpanSource::Sdk) {
            return Err(Failure::usage(
                "--counters needs SDK spans, because threads read their own counters; mark spans with \
                 tailscope.h and use --span sdk",
            ));
        }
        check(args, &kept, &spans)?;
        let resolved = resolve_probes(&spans, &processes, launched.as_ref())?;
        let options = options(args, kept, spans, counters, launched.is_some());
        let mut recorder = Recorder::start(&options, resolved).map_err(failure)?;
        watch_all(&processes, &args.pids, args.no_children, |process| {
            recorder.watch(process).map_err(failure)
        })?;
        if let Some(launched) = &mut launched {
            recorder.attach_sdk(launched.program());
            recorder
                .watch(&Process {
                    pid: launched.pid(),
                })
                .map_err(failure)?;
            launched.go()?;
        }
        Ok(Self {
            recorder,
            options,
            launched,
        })
    }

    /// Where its spans come from.
    pub fn spans(&self) -> &[SpanSource] {
        &self.options.spans
    }

    /// Ends it, and the command. How the command ended, if it did so by itself.
    pub fn finish(
        self,
        listener: &mut impl Listener,
    ) -> (Result<Progress, RecordError>, Option<ExitStatus>) {
        let Self {
            recorder,
            mut launched,
            ..
        } = self;
        let has_ended = launched
            .as_ref()
            .is_some_and(|launched| !recorder.processes().contains(&launched.pid()));
        let progress = recorder.finish(listener);
        let status = launched.as_mut().and_then(|launched| {
            let status = if has_ended {
                launched.ended_soon()
            } else {
                launched.ended()
            };
            status.ok().flatten()
        });
        (progress, status)
    }
}

/// What a recording is asked for, with these spans and counters.
pub fn options(
    args: &Subject,
    kept: Kept<'_>,
    spans: Vec<SpanSource>,
    counters: Vec<Event>,
    ends_command: bool,
) -> Options {
    let others = args.tail.map_or(1.0, |_| 0.01);
    Options {
        spans,
        sample: args.sample,
        keep: Policy {
            others: args.keep.unwrap_or(others),
            tail: args.tail,
            budget: kept.budget,
        },
        naming: args.naming().unwrap_or_default(),
        tls: args.tls_names,
        traces: kept.traces,
        counters,
        stacks: kept.stacks,
        code_for: match kept.ledger {
            Some(_) => CodeFor::Ledger,
            None => CodeFor::Screen,
        },
        children: !args.no_children,
        tell_programs: false,
        takes_over: None,
        pauses: kept.pauses,
        ends_command,
        ledger: kept.ledger,
        command: env::args().collect(),
    }
}

/// Refuses options that don't go together, and a folder that holds a ledger.
pub fn check(args: &Subject, kept: &Kept<'_>, spans: &[SpanSource]) -> Result<()> {
    if let Some(place) = &kept.ledger {
        may_begin(&place.folder, place.existing).map_err(|e| failure(e.into()))?;
    }
    // Only requests that are put together from slices have names and traces.
    let asked = [
        (args.no_names, "--no-names"),
        (args.name.is_some(), "--name"),
        (args.tls_names, "--tls-names"),
        (kept.traces, "--traceparent"),
    ];
    let Some((_, option)) = asked.into_iter().find(|(asked, _)| *asked) else {
        return Ok(());
    };
    if spans.contains(&SpanSource::Request) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{option} needs requests that are followed from thread to thread: --span request, without \
         --sample"
    )))
}

/// The processes that `-p` names, with their descendants unless only they are meant. `work` is what
/// there is nothing to do without them or a command.
pub fn targets(
    pids: &[u32],
    command: &[OsString],
    no_children: bool,
    work: &str,
) -> Result<Vec<Process>> {
    if pids.is_empty() && command.is_empty() {
        return Err(Failure::usage(format!(
            "nothing to {work}; name a process with -p PID, or a command after --"
        )));
    }
    PidNamespace::here().map_err(Failure::machine)?;
    let others_too = !missing_capabilities()
        .iter()
        .any(|m| m.name == "CAP_SYS_PTRACE");
    let mut processes = Vec::new();
    for pid in pids {
        let process = Process::find(*pid, others_too).map_err(Failure::usage)?;
        if !no_children {
            processes.extend(process.descendants());
        }
        processes.push(process);
    }
    Ok(processes)
}

/// How often descendants are looked for that were made before their parents were watched.
const SEARCHES: usize = 3;

/// Watches these processes, of which `-p` names `roots`. Nobody followed them while the kernel's
/// programs were loaded, so what they made meanwhile is looked for too.
pub fn watch_all(
    processes: &[Process],
    roots: &[u32],
    no_children: bool,
    mut watch: impl FnMut(&Process) -> Result<()>,
) -> Result<()> {
    processes.iter().try_for_each(&mut watch)?;
    let mut known: HashSet<u32> = processes.iter().map(|process| process.pid).collect();
    for _ in 0..if no_children { 0 } else { SEARCHES } {
        let mut new = Process::descendants_of(roots);
        new.retain(|process| known.insert(process.pid));
        if new.is_empty() {
            break;
        }
        new.iter().try_for_each(&mut watch)?;
    }
    Ok(())
}

/// The command, if there is one: started, and stopped before its first instruction.
pub fn launch(command: &[OsString], prints: Prints) -> Result<Option<Launched>> {
    if command.is_empty() {
        return Ok(None);
    }
    Launched::stopped(command, prints)
        .map(Some)
        .map_err(|e| match e {
            LaunchError::NotFound(_) => Failure::usage(e),
            LaunchError::System { .. } => Failure::machine(e),
        })
}

/// What `--span` says, or what suits the programs.
pub fn sources(
    args: &Subject,
    processes: &[Process],
    launched: Option<&Launched>,
) -> Result<Vec<SpanSource>> {
    if args.spans.is_empty() {
        let patience = patience_with(processes);
        let mut mapped = MappedSizes::default();
        let mut maps_sdk = || {
            let mut all = processes.iter();
            all.any(|process| mapped.have_changed(process.pid) && process.has_sdk())
        };
        let mut has_sdk = launched.is_some_and(Launched::has_sdk) || maps_sdk();
        while !has_sdk && patience.once_more() {
            has_sdk = maps_sdk();
        }
        return Ok(vec![if has_sdk {
            SpanSource::Sdk
        } else {
            SpanSource::usual(args.sample)
        }]);
    }
    SpanSource::check(&args.spans).map_err(Failure::usage)?;
    Ok(args.spans.clone())
}

/// With those that have just started: they may not run yet what is looked for in them.
fn patience_with(processes: &[Process]) -> Patience {
    Patience::with(processes.iter().map(|process| process.pid))
}

/// Finds the probes of those sources that have some.
pub fn resolve_probes(
    spans: &[SpanSource],
    processes: &[Process],
    launched: Option<&Launched>,
) -> Result<Vec<ResolvedProbes>> {
    let patience = patience_with(processes);
    let program = launched.map(Launched::program);
    SpanSource::probes(spans)
        .enumerate()
        .map(|(number, source)| {
            let number = u8::try_from(number)?;
            let mut taken = ResolvedProbes::find(number, source, processes, program);
            while taken.is_err() && patience.once_more() {
                taken = ResolvedProbes::find(number, source, processes, program);
            }
            taken.map_err(Failure::usage)
        })
        .collect()
}

/// The exit code and the remedy for each way in which a recording fails.
pub fn failure(error: RecordError) -> Error {
    match error {
        RecordError::Load(e) => load_failure(e),
        RecordError::Ledger(e @ tailscope_trace::Error::Exists { .. }) => {
            Failure::usage(format!("{e} with --overwrite"))
        }
        e => Failure::machine(e),
    }
}

/// The same for the kernel's programs.
pub fn load_failure(error: LoadError) -> Error {
    match &error {
        LoadError::Privilege(missing) => {
            let me =
                env::current_exe().map_or_else(|_| "tailscope".into(), |p| p.display().to_string());
            let names: Vec<_> = missing.iter().map(|m| m.name.to_lowercase()).collect();
            Failure::machine(format!(
                "{error}.\nRun as root, or grant the capabilities once: sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace+ep {me}\n(missing now: {})",
                names.join(", ")
            ))
        }
        LoadError::UserNamespace | LoadError::Namespace(_) => Failure::machine(error),
        _ => Failure::machine(format!(
            "{error}\n(set TAILSCOPE_LIBBPF_LOG=1 to see the messages of libbpf)"
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    /// Whom it watches when we make a child as soon as we are watched; and the child.
    fn watched(no_children: bool) -> (Vec<u32>, u32) {
        let us = std::process::id();
        let mut child: Option<Child> = None;
        let mut watched = Vec::new();
        watch_all(&[Process { pid: us }], &[us], no_children, |process| {
            watched.push(process.pid);
            child.get_or_insert_with(|| Command::new("sleep").arg("60").spawn().expect("starts"));
            Ok(())
        })
        .expect("nothing fails");
        let mut child = child.expect("we were watched");
        let pid = child.id();
        child.kill().expect("our child");
        child.wait().expect("our child");
        (watched, pid)
    }

    #[test]
    fn a_child_that_is_made_before_its_parent_is_watched_is_watched_too() {
        let (watched, child) = watched(false);
        assert!(watched.contains(&child), "{child} is not in {watched:?}");
    }

    #[test]
    fn without_children_only_those_that_were_named_are_watched() {
        assert_eq!(watched(true).0, [std::process::id()]);
    }
}
