//! `tailscope record`.

use std::env;
use std::io::{IsTerminal, Write, stderr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Error, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tailscope_kernel::{LoadError, missing_capabilities};
use tailscope_record::{
    Aim, End, LaunchError, Launched, Options, Policy, Process, Progress, RecordError, Recorder,
    SpanSource,
};
use tailscope_trace::Existing;

use crate::args::Record;
use crate::failure::Failure;
use crate::units::{bytes, count, time};

/// Records, and says how it went.
pub fn run(args: Record) -> Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let processes = targets(&args)?;
    let mut launched = launch(&args)?;
    let spans = sources(&args, &processes, launched.as_ref())?;
    let aims = aims(&spans, &processes, launched.as_ref())?;
    let options = Options {
        spans: spans.clone(),
        sample: args.sample,
        keep: Policy {
            others: args
                .keep
                .unwrap_or(if args.tail.is_some() { 0.01 } else { 1.0 }),
            tail: args.tail,
            budget: args.budget,
        },
        children: !args.no_children,
        output: args.output.clone(),
        existing: if args.overwrite {
            Existing::Overwrite
        } else {
            Existing::Refuse
        },
        command: env::args().collect(),
    };
    let mut recorder = Recorder::start(&options, aims).map_err(record_failure)?;
    for process in &processes {
        recorder.watch(process).map_err(record_failure)?;
    }
    if let Some(launched) = &launched {
        recorder
            .call_sdk(launched.program())
            .map_err(record_failure)?;
        recorder
            .watch(&Process {
                pid: launched.pid(),
            })
            .map_err(record_failure)?;
        launched.go()?;
    }
    let screen = Screen::new(args.quiet);
    screen.begin(&spans);
    let end = recorder.run(args.duration, &stop, |progress, notices| {
        screen.tell(progress, notices);
    });
    let progress = recorder.finish();
    let status = launched
        .as_mut()
        .and_then(|launched| launched.ended().ok().flatten());
    drop(launched);
    if let Some(status) = status.filter(|status| !status.success()) {
        eprintln!("tailscope: the command ended with {status}; what it did is recorded");
    }
    screen.end(&end, progress.as_ref().ok(), &args);
    end.map_err(record_failure)?;
    progress.map_err(record_failure)?;
    Ok(ExitCode::SUCCESS)
}

fn targets(args: &Record) -> Result<Vec<Process>> {
    if args.pids.is_empty() && args.command.is_empty() {
        return Err(Failure::usage(
            "nothing to record: name a process with -p PID, or a command after --",
        ));
    }
    let others_too = !missing_capabilities()
        .iter()
        .any(|m| m.name == "CAP_SYS_PTRACE");
    let mut processes = Vec::new();
    for pid in &args.pids {
        let process = Process::find(*pid, others_too).map_err(Failure::usage)?;
        if !args.no_children {
            processes.extend(process.descendants());
        }
        processes.push(process);
    }
    Ok(processes)
}

fn launch(args: &Record) -> Result<Option<Launched>> {
    if args.command.is_empty() {
        return Ok(None);
    }
    Launched::stopped(&args.command)
        .map(Some)
        .map_err(|e| match e {
            LaunchError::NotFound(_) => Failure::usage(e),
            LaunchError::System { .. } => Failure::machine(e),
        })
}

/// What `--span` says, or what suits the programs.
fn sources(
    args: &Record,
    processes: &[Process],
    launched: Option<&Launched>,
) -> Result<Vec<SpanSource>> {
    if args.spans.is_empty() {
        let has_sdk = processes.iter().any(Process::has_sdk)
            || launched.is_some_and(|launched| launched.has_sdk());
        return Ok(vec![if has_sdk {
            SpanSource::Sdk
        } else {
            SpanSource::ReadySend
        }]);
    }
    SpanSource::check(&args.spans).map_err(Failure::usage)?;
    Ok(args.spans.clone())
}

/// Finds the probes of those sources that have some.
fn aims(
    spans: &[SpanSource],
    processes: &[Process],
    launched: Option<&Launched>,
) -> Result<Vec<Aim>> {
    SpanSource::probes(spans)
        .enumerate()
        .map(|(number, source)| {
            let number = u8::try_from(number)?;
            let program = launched.map(Launched::program);
            Aim::take(number, source, processes, program).map_err(Failure::usage)
        })
        .collect()
}

/// The exit code and the remedy for each way in which a recording fails.
fn record_failure(error: RecordError) -> Error {
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
                "{error}.\nRun as root, or grant it once: sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace+ep {me}\n(missing now: {})",
                names.join(", ")
            ))
        }
        _ => Failure::machine(format!(
            "{error}\n(TAILSCOPE_LIBBPF_LOG=1 shows what libbpf says)"
        )),
    }
}

/// What the person sees on stderr while it records.
struct Screen {
    quiet: bool,
    terminal: bool,
}

impl Screen {
    fn new(quiet: bool) -> Self {
        Self {
            quiet,
            terminal: stderr().is_terminal(),
        }
    }

    fn begin(&self, spans: &[SpanSource]) {
        if !self.quiet {
            let spans: Vec<_> = spans.iter().map(ToString::to_string).collect();
            eprintln!("recording {} (Ctrl-C ends it)", spans.join(", "));
        }
    }

    fn tell(&self, progress: &Progress, notices: &[String]) {
        let mut out = stderr().lock();
        for notice in notices {
            let _ = writeln!(
                out,
                "{}tailscope: {notice}",
                if self.terminal { "\r\x1b[K" } else { "" }
            );
        }
        if self.quiet {
            return;
        }
        // A line that is rewritten on a terminal; one every ten seconds in a log.
        let line = summary(progress);
        if self.terminal {
            let _ = write!(out, "\r\x1b[K{line}");
        } else if progress.elapsed.as_secs().is_multiple_of(10) {
            let _ = writeln!(out, "{line}");
        }
        let _ = out.flush();
    }

    fn end(&self, end: &Result<End, RecordError>, progress: Option<&Progress>, args: &Record) {
        if self.quiet {
            return;
        }
        if self.terminal {
            eprint!("\r\x1b[K");
        }
        match end {
            Ok(End::Exited) => eprintln!("every process has ended; what it did is kept"),
            Ok(End::Stopped) => eprintln!("stopped; what was recorded is kept"),
            _ => {}
        }
        if let Some(progress) = progress {
            eprintln!("{}", summary(progress));
            let folder = args.output.display();
            if progress.rows == 0 {
                eprintln!(
                    "no span ended in this time: is the process idle, or is --span the wrong source?"
                );
            } else {
                eprintln!("wrote {folder}\nnext: tailscope explain {folder}");
            }
        }
    }
}

fn summary(progress: &Progress) -> String {
    let quantile = |q: Option<u64>| q.map_or_else(|| "-".into(), time);
    format!(
        "{:>4} s  {} spans  p50 {}  p99 {}  {}  {} lost",
        progress.elapsed.as_secs(),
        count(progress.rows),
        quantile(progress.p50_ns),
        quantile(progress.p99_ns),
        bytes(progress.bytes),
        count(progress.lost),
    )
}
