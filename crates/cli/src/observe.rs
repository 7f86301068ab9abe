//! `tailscope observe`.

mod args;
mod joint;
mod text;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;
use tailscope_kernel::{Also, PidNamespace, drop_capabilities};
use tailscope_observe::placement::{Wish, allowed_here};
use tailscope_observe::resolve::Resolver;
use tailscope_observe::{
    Budget, Name, Options, Placement, PlacementError, ResolveError, Role, RunError, Signal,
    Tolerance, Topology, Where, observe, self_test,
};

use crate::console::Console;
use crate::failure::Failure;
use crate::page::{self, PageWriter};
use crate::screen::Screen;
use crate::streams::{print_json, print_laid_out};
use crate::subject::stop_on_signals;
use crate::units::count;
pub use args::Observe;

/// The width of the text in the JSON: a page scrolls where it has less room.
const TEXT_COLUMNS: usize = 132;

/// What `--json` prints, and what the page is drawn from.
#[derive(Serialize)]
struct Printed<'r> {
    #[serde(flatten)]
    report: &'r tailscope_observe::Report,
    /// The report as text.
    text: String,
}

/// Observes, and prints the report.
pub fn run(args: &Observe) -> Result<ExitCode> {
    if args.self_test {
        return test_itself(args);
    }
    check(args)?;
    PidNamespace::here().map_err(Failure::machine)?;
    // It stays until the end: signals of the kernel are written by programs that it has loaded.
    let mut resolver = Resolver::default();
    let Named {
        counters,
        tags,
        progress,
    } = named(args, &mut resolver)?;
    let placement = placed(&beside_owners(args, &resolver))?;
    let options = options(args, progress);
    let pages = args.html.as_deref();
    let pages = pages.map(|path| PageWriter::find().map(|writer| (writer, path)));
    let pages = pages.transpose()?;
    let stop = stop_on_signals()?;
    let writes = args.html.is_some() || args.output.is_some();
    drop_capabilities([(Also::WriteAnywhere, writes)]).map_err(Failure::machine)?;
    let screen = Screen::new(args.quiet);
    let from = placement.cpu;
    screen.say(&format!("observing from CPU {from} (Ctrl-C ends it)"));
    let report = observe(&counters, &tags, &placement, &options, &stop, |progress| {
        let seconds = progress.elapsed.as_secs();
        let line = format!("{seconds:>4} s  {} samples", count(progress.samples));
        screen.progress(progress.elapsed, &line);
    })
    .map_err(failed)?;
    screen.clear();
    publish(&report, args, pages)?;
    outcome(&report)
}

/// Whether the arguments name something that has a rate.
fn check(args: &Observe) -> Result<()> {
    if args.signals.is_empty() {
        return Err(Failure::usage(
            "nothing to observe; name a counter with --signal channel:PID:NAME (tailscope observe \
             --help shows the other kinds)",
        ));
    }
    let pairs = args.signals.iter().flat_map(|signal| {
        let tags = args.tags.iter();
        tags.filter_map(|tag| signal.without_rate_by(tag))
    });
    if let Some(why) = pairs.into_iter().next() {
        return Err(Failure::usage(why));
    }
    Ok(())
}

/// The signals that the arguments name, found.
struct Named {
    counters: Vec<Signal>,
    tags: Vec<Signal>,
    /// The application's speed, if it is not the first counter.
    progress: Option<Signal>,
}

fn named(args: &Observe, resolver: &mut Resolver) -> Result<Named> {
    let names = args.signals.iter().chain(&args.tags).chain(&args.progress);
    let names: Vec<&Name> = names.collect();
    let mut counters = resolver.resolve_all(&names).map_err(unresolved)?;
    let mut tags = counters.split_off(args.signals.len());
    let progress = tags.split_off(args.tags.len()).pop();
    if let Some(signal) = counters.iter().find(|s| s.kind == Some(Role::Tag)) {
        return Err(Failure::usage(format!(
            "{0} is a value, not a counter: it has no rate; use --tag {0}",
            signal.name
        )));
    }
    Ok(Named {
        counters,
        tags,
        progress,
    })
}

/// What is wished of the observer's CPU, beside the processes that have the signals.
fn beside_owners(args: &Observe, resolver: &Resolver) -> Wish {
    let mut wish = wish(args);
    for owner in resolver.owners() {
        let (allowed, busiest) = owner.cpus();
        wish.application.extend(allowed);
        wish.observed = wish.observed.or(busiest);
    }
    wish.application.sort_unstable();
    wish.application.dedup();
    wish
}

fn options(args: &Observe, progress: Option<Signal>) -> Options {
    Options {
        period: args.period,
        jitter: args.jitter,
        tolerance: Tolerance::here(args.dte),
        most: args.at_most,
        duration: args.duration,
        slice: args.series,
        pauses: !args.no_pauses || args.budget.is_some(),
        budget: args.budget.map(Budget),
        raw: args.output.clone(),
        progress,
        seed: args.seed,
    }
}

/// Prints the report, and draws its page if there is to be one.
fn publish(
    report: &tailscope_observe::Report,
    args: &Observe,
    pages: Option<(PageWriter, &Path)>,
) -> Result<()> {
    let printed = page::Report {
        kind: "observe",
        report: &Printed {
            report,
            text: text::report(report, TEXT_COLUMNS),
        },
    };
    if args.json {
        print_json(&printed)?;
    } else {
        print_laid_out(&text::report(report, Console::stdout().width))?;
    }
    if let Some((writer, path)) = pages {
        writer.write(&printed, path)?;
    }
    Ok(())
}

/// Whether the report has what was asked for.
fn outcome(report: &tailscope_observe::Report) -> Result<ExitCode> {
    if let Some(error) = report.raw.as_ref().and_then(|raw| raw.error.as_ref()) {
        return Err(Failure::machine(format!(
            "raw samples are missing: {error}"
        )));
    }
    if report.kept == 0 {
        return Err(Failure::machine(format!(
            "can't report a rate: no pair of samples was reliable ({}); try a longer --period",
            report.end
        )));
    }
    Ok(ExitCode::SUCCESS)
}

fn wish(args: &Observe) -> Wish {
    Wish {
        cpu: args.cpu,
        on: args.on.map(|on| match on {
            args::On::SameCore => Where::SameCore,
            args::On::OtherCore => Where::OtherCore,
        }),
        sleeps: args.budget.is_none() && args.period.sleeps(),
        ..Wish::default()
    }
}

fn placed(wish: &Wish) -> Result<Placement> {
    let topology = Topology::here()?;
    Placement::choose(&topology, &allowed_here()?, wish).map_err(misplaced)
}

fn misplaced(error: PlacementError) -> anyhow::Error {
    match error {
        PlacementError::OnlyOne(_)
        | PlacementError::NoSibling { .. }
        | PlacementError::Refused { .. } => Failure::machine(error),
        _ => Failure::usage(error),
    }
}

fn unresolved(error: ResolveError) -> anyhow::Error {
    match error {
        ResolveError::System { .. } | ResolveError::Machine { .. } => Failure::machine(error),
        _ => Failure::usage(error),
    }
}

fn failed(error: RunError) -> anyhow::Error {
    match error {
        RunError::Placement(error) => misplaced(error),
        RunError::Number { .. } | RunError::Raw(_) => Failure::usage(error),
        RunError::System { .. } => Failure::machine(error),
    }
}

fn test_itself(args: &Observe) -> Result<ExitCode> {
    // With one CPU the part with a writer is left out.
    let placement = placed(&Wish {
        sleeps: true,
        ..wish(args)
    })?;
    let writer = Wish {
        application: vec![placement.cpu],
        observed: Some(placement.cpu),
        on: args.on.and(wish(args).on),
        cpu: None,
        sleeps: false,
    };
    let writer = match placed(&writer) {
        Ok(writer) => Some(writer),
        Err(e) if matches!(e.downcast_ref(), Some(Failure::Machine(_))) => None,
        Err(e) => return Err(e),
    };
    let test = self_test::run(&placement, writer.as_ref())
        .map_err(|e| Failure::machine(format!("the self-test can't run: {e}")))?;
    if args.json {
        print_json(&test)?;
    } else {
        let text = text::self_test(&test, writer.map(|writer| writer.cpu));
        print_laid_out(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}
