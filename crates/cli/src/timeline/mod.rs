//! `tailscope timeline`: recording, and what is done with a window.

mod args;
mod events;
mod overhead;
mod requests;
mod story;

use std::fs;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Result;
use signal_hook::consts::SIGUSR1;
use tailscope_record::{Launched, Prints, Process, ResolvedProbes, SpanSource};
use tailscope_timeline::{
    Figures, Flight, FlightError, Notice, Options, Reason, SpanProbes, Trace, TraceError, analyze,
    ask_for_window, perfetto, picture,
};

use crate::failure::Failure;
use crate::overhead::said;
use crate::page::{self, PageWriter};
use crate::streams::{print, save, say};
use crate::subject::{launch, load_failure, resolve_probes, stop_on_signals, targets, watch_all};
use crate::units::{bytes, count, time};
use args::{Dump, Page, Perfetto, WithWindow};

pub use args::Timeline;

/// The most that verifiers let a CPU's ring be, in bytes.
const MOST_A_CPU: u64 = 512 << 20;
/// How often the rings are looked at.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// Records, or tells of what was recorded.
pub fn run(args: Timeline) -> Result<ExitCode> {
    match args.with {
        None => record(&args),
        Some(WithWindow::Story(story)) => story::run(&story),
        Some(WithWindow::Requests(list)) => requests::run(&list),
        Some(WithWindow::Page(page)) => draw_page(&page),
        Some(WithWindow::Events(events)) => events::run(&events),
        Some(WithWindow::Perfetto(perfetto)) => draw(&perfetto),
        Some(WithWindow::Dump(dump)) => have_written(&dump),
    }
}

/// Opens a window.
fn open(path: &std::path::Path) -> Result<Trace> {
    Trace::open(path).map_err(|e| match e {
        TraceError::Foreign { .. } => Failure::usage(e),
        TraceError::System { .. } => Failure::usage(e),
    })
}

fn no_story(window: &std::path::Path, slow: u64, number: u32) -> anyhow::Error {
    Failure::usage(format!(
        "{} has {slow} slow requests; it has no number {number}",
        window.display()
    ))
}

fn draw_page(args: &Page) -> Result<ExitCode> {
    let trace = open(&args.trace)?;
    let mut told = analyze(&trace, None, args.number as usize);
    told.stories
        .drain(..told.stories.len().min(args.number as usize - 1));
    let Some(story) = told.stories.first_mut() else {
        return Err(no_story(&args.trace, told.slow, args.number));
    };
    let beside = || args.trace.with_extension(format!("{}.html", args.number));
    let path = args.output.clone().unwrap_or_else(beside);
    story.picture = Some(picture(&trace, story));
    let report = page::Report {
        kind: "timeline",
        report: &told,
    };
    PageWriter::find()?.write(&report, &path)?;
    say!("wrote {}: {}", path.display(), told.stories[0].sentence);
    Ok(ExitCode::SUCCESS)
}

fn draw(args: &Perfetto) -> Result<ExitCode> {
    let trace = open(&args.trace)?;
    let path = args
        .output
        .clone()
        .unwrap_or_else(|| args.trace.with_extension("perfetto-trace"));
    save(&path, |mut out| perfetto::write(&trace, &mut out))?;
    say!("wrote {}; open it at ui.perfetto.dev", path.display());
    Ok(ExitCode::SUCCESS)
}

fn have_written(args: &Dump) -> Result<ExitCode> {
    let path = ask_for_window(&args.socket).map_err(|e| {
        Failure::machine(format!(
            "can't get a window from the recorder at {}: {e}",
            args.socket.display()
        ))
    })?;
    print(&format!("{}\n", path.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn record(args: &Timeline) -> Result<ExitCode> {
    let stop = stop_on_signals()?;
    let asked = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGUSR1, Arc::clone(&asked))?;
    let processes = targets(&args.pids, &args.command, args.no_children, "watch")?;
    SpanSource::check(&args.spans).map_err(Failure::usage)?;
    let mut launched = launch(&args.command, Prints::Through)?;
    let resolved = resolve_probes(&args.spans, &processes, launched.as_ref())?;
    let held = args
        .overhead
        .map(|budget| overhead::begin(args, budget, &processes));
    let mut held = held.transpose()?;
    let mut flight =
        Flight::begin(options(args, &resolved, launched.is_some())).map_err(failure)?;
    for limit in flight.limits() {
        say!("tailscope: {limit}");
    }
    watch_all(&processes, &args.pids, args.no_children, |process| {
        watch(&flight, process)
    })?;
    if let Some(launched) = &mut launched {
        flight.watch(launched.pid()).map_err(failure)?;
        flight.attach_sdk(launched.program());
        launched.go()?;
    }
    if !args.quiet {
        say!(
            "keeping the last {} in {} of memory (Ctrl-C ends the recording, SIGUSR1 to {} writes a window)",
            time(args.keep.as_nanos() as u64),
            bytes(flight.ring_bytes()),
            std::process::id()
        );
    }
    let ended = match &mut held {
        Some(held) => overhead::follow(&mut flight, args, held, &stop, &asked),
        None => {
            let end = args.duration.map(|duration| Instant::now() + duration);
            follow(&mut flight, launched.as_mut(), args, &stop, &asked, end).map(drop)
        }
    };
    let (figures, notices) = flight.finish();
    tell_notices(&notices, args);
    if !args.quiet {
        say!("{}", summary(&figures));
        if let (Some(held), Some(budget)) = (&held, args.overhead) {
            say!("{}", said(&held.spent(), budget));
        }
    }
    ended?;
    let failed = notices.iter().any(|n| matches!(n, Notice::Failed { .. }));
    Ok(ExitCode::from(if failed { 3 } else { 0 }))
}

fn watch(flight: &Flight, process: &Process) -> Result<()> {
    flight.watch(process.pid).map_err(failure)?;
    // It may have ended while the kernel's programs were loaded: nobody would see its end.
    if !process.lives() {
        flight.unwatch(process.pid);
    }
    Ok(())
}

/// How it was started, without the command behind `--`, which is the user's.
fn arguments() -> Vec<String> {
    let words = std::env::args_os().skip(1).take_while(|word| word != "--");
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

/// What a flight recorder with these arguments does.
pub fn options(args: &Timeline, resolved: &[ResolvedProbes], ends_command: bool) -> Options {
    let on_sockets = [
        SpanSource::RecvSend,
        SpanSource::ReadySend,
        SpanSource::Request,
    ];
    Options {
        arguments: arguments(),
        keep: args.keep,
        memory: args.memory,
        slow: args.slow,
        folder: args.output.clone(),
        ends_command,
        per_minute: args.per_minute,
        tier: args.events,
        disk: args.disk,
        follow_children: !args.no_children,
        perfetto: args.perfetto,
        control: args.control.clone(),
        sockets: args.spans.is_empty() || on_sockets.iter().any(|of| args.spans.contains(of)),
        spans: resolved
            .iter()
            .map(|probes| SpanProbes {
                name: probes.span_name(),
                probes: probes.probes().to_vec(),
            })
            .collect(),
        sdk: args.spans.contains(&SpanSource::Sdk),
    }
}

/// Looks at the rings until then, `stop` is set, or no process is left. A window is written whenever
/// `asked` is set. False: there is nothing more to look at.
fn follow(
    flight: &mut Flight,
    mut launched: Option<&mut Launched>,
    args: &Timeline,
    stop: &AtomicBool,
    asked: &AtomicBool,
    until: Option<Instant>,
) -> Result<bool> {
    while until.is_none_or(|until| Instant::now() < until) {
        if stop.load(Relaxed) {
            return Ok(false);
        }
        flight.wait(POLL_EVERY);
        let goes_on = look(flight, args, asked);
        if let Some(launched) = &mut launched {
            launched.ended()?;
        }
        if !goes_on {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Looks once. False: every process has ended.
fn look(flight: &mut Flight, args: &Timeline, asked: &AtomicBool) -> bool {
    if asked.swap(false, Relaxed) {
        flight.ask();
    }
    let notices = flight.poll();
    tell_notices(&notices, args);
    let goes_on = flight.any_is_alive();
    if !goes_on && !args.quiet {
        say!("every process has ended");
    }
    goes_on
}

fn failure(error: FlightError) -> anyhow::Error {
    match error {
        FlightError::Load(e) => load_failure(e),
        e => Failure::machine(e),
    }
}

fn tell_notices(notices: &[Notice], args: &Timeline) {
    for notice in notices {
        match notice {
            Notice::Failed { why } | Notice::Note(why) => say!("tailscope: {why}"),
            Notice::Holds {
                held_ns,
                keep_ns,
                events_per_second,
                needed_bytes,
            } => {
                let rate = format!("at {} events/s,", count(*events_per_second));
                if held_ns < keep_ns {
                    say!(
                        "tailscope: {rate} the memory holds {} of the requested {}; {}",
                        time(*held_ns),
                        time(*keep_ns),
                        remedy(*needed_bytes)
                    );
                } else if !args.quiet {
                    say!("{rate} the memory would hold {}", time(*held_ns));
                }
            }
            Notice::Written { .. } if args.quiet => {}
            Notice::Written {
                path,
                reason,
                held_ns,
                events,
                lost,
                took_ns,
            } => {
                let why = match reason {
                    Reason::Slow => "a request was slow",
                    Reason::Asked => "requested",
                    Reason::End => "the recording ended",
                };
                let size = fs::metadata(path).map_or(0, |file| file.len());
                say!(
                    "wrote {}: {why}; {} events of {}, {lost} lost, {} in {}",
                    path.display(),
                    count(*events),
                    time(*held_ns),
                    bytes(size),
                    time(*took_ns)
                );
                say!("next: tailscope timeline story {}", path.display());
            }
        }
    }
}

/// What to do where the memory is too small.
fn remedy(needed: u64) -> String {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    if needed / cpus > MOST_A_CPU {
        return "512 MiB a CPU is the most that can be used, so use a shorter --keep".to_owned();
    }
    // A little more, as the rate is not the same in each second.
    let megabytes = needed / 1_000_000 * 11 / 10 + 1;
    format!("use --memory {megabytes}MB")
}

fn summary(figures: &Figures) -> String {
    let mut text = format!(
        "{} events, {} requests, {} slow",
        count(figures.events),
        count(figures.requests),
        count(figures.slow)
    );
    for (number, what) in [
        (
            figures.passed_over,
            "slow requests without a window (--per-minute, --disk)",
        ),
        (figures.skipped, "events skipped by the kernel"),
        (figures.sdk_lost, "SDK spans lost"),
        (figures.unseen, "events overwritten before they were read"),
    ] {
        if number > 0 {
            text += &format!("; {} {what}", count(number));
        }
    }
    text
}
