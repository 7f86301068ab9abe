//! `tailscope locality predict`.

mod apart;

use std::fmt::Write;
use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tailscope_kernel::drop_capabilities;
use tailscope_locality::chase::experiment::Options;
use tailscope_locality::chase::interval::Interval;
use tailscope_locality::chase::pair;
use tailscope_locality::chase::replay::{self, Gain, Prediction, ReplayError, Round};
use tailscope_locality::profile::demand::Demands;
use tailscope_locality::report::Distance;
use tailscope_locality::sampler::Visits;
use tailscope_locality::{Mode, Pages};
use tailscope_observe::Topology;

use super::args::Predict;
use super::distance::{LineNs, steady};
use crate::chase;
use crate::failure::Failure;
use crate::page;
use crate::screen::Screen;
use crate::streams::{print_json, print_laid_out, say};
use crate::subject::stop_on_signals;
use crate::units::count;
use apart::Answer;

/// A mode runs this long before the next one.
const SEGMENT: Duration = Duration::from_millis(10);

/// Longer rounds do not fill the caches in a reasonable time.
const LONGEST_NS: f64 = 1e8;
/// Fewer threads that share the time: nothing moves between them.
const FEWEST_THREADS: f64 = 1.5;

/// The part of the report of `tailscope locality` that is replayed.
#[derive(Debug, Deserialize)]
struct Found {
    kind: String,
    phase: Option<String>,
    counts: Counts,
    visits: Option<Visits>,
    demands: Option<Demands>,
    distance: Option<Distance>,
}

#[derive(Debug, Deserialize)]
struct Counts {
    samples: u64,
    in_kernel: u64,
}

/// What is printed.
#[derive(Debug, Serialize)]
struct Report {
    phase: String,
    cpus: Vec<u32>,
    sessions: usize,
    line_ns: LineNs,
    #[serde(flatten)]
    prediction: Prediction,
}

/// Replays what was found, and prints what that shows.
pub fn run(args: &Predict) -> Result<ExitCode> {
    if let Some(parent) = args.parent {
        apart::end_with(parent)?;
    }
    let (found, bytes) = read(args)?;
    let distance = found.distance.clone().unwrap_or_default();
    let (phase, demands, round) = match found.whole() {
        Ok(whole) => whole,
        Err(why) => {
            say!("tailscope: can't tell: {why}");
            return Ok(ExitCode::from(1));
        }
    };
    let cpus = chase::chosen(&args.cpus, &Topology::here()?)?;
    if cpus.len() != 2 {
        return Err(Failure::usage(
            "--cpus needs two CPUs here, such as --cpus 0,1",
        ));
    }
    drop_capabilities([]).map_err(Failure::machine)?;
    if let Some(part) = args.part {
        return act(part, args, &cpus, &demands, round);
    }
    let stop = stop_on_signals()?;
    let screen = Screen::new(args.quiet);
    let start = Instant::now();
    let parts = replay::parts(&demands).len();
    let say = |number: usize| {
        screen.progress(start.elapsed(), &format!("acting out: {number} of {parts}"));
    };
    // Of other CPUs it says nothing.
    let sampled_ns = match distance.cpus[..] == cpus[..] {
        true => distance.line_ns,
        false => Vec::new(),
    };
    let wanted = steady(&sampled_ns);
    let acted = apart::act_all(parts, args, &cpus, &bytes, wanted, &stop, say)?;
    let prediction = replay::predict(&demands, round, &acted).map_err(Failure::machine)?;
    screen.clear();
    let report = Report {
        phase,
        cpus,
        sessions: args.sessions,
        line_ns: LineNs {
            acted: acted
                .iter()
                .filter_map(|one| one.point.line_ns)
                .map(|[median, ..]| median)
                .collect(),
            sampled: sampled_ns,
        },
        prediction,
    };
    if args.json {
        print_json(&page::Report {
            kind: "locality-predict",
            report: &report,
        })?;
    } else {
        print_laid_out(&text(&report))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// As the process that [`apart::act`] starts: replays one part, and prints what that shows.
fn act(
    part: usize,
    args: &Predict,
    cpus: &[u32],
    demands: &Demands,
    round: Round,
) -> Result<ExitCode> {
    let stop = stop_on_signals()?;
    let demand = replay::parts(demands).nth(part);
    let demand = demand.ok_or_else(|| Failure::usage("there is no such part"))?;
    if let (Some(wanted), &[first, second]) = (args.line, cpus) {
        let now = pair::line_ns([first, second]).map_err(Failure::machine)?;
        if now.is_some_and(|now| !pair::is_as_far(now, wanted)) {
            print_json(&Answer::Elsewhere)?;
            return Ok(ExitCode::SUCCESS);
        }
    }
    let options = Options {
        // Phase p belongs to CPU p, and the phase is number 0.
        cpus: cpus.iter().rev().copied().collect(),
        sessions: args.sessions,
        owners: None,
        start: None,
        modes: vec![Mode::Synchronous, Mode::Yield, Mode::Delegate],
        duration: args.duration,
        segment: SEGMENT,
        tolerance: args.tolerance,
        pages: Pages::Huge,
        seed: args.seed,
        timed: false,
    };
    let answer = match replay::act(demand, round, &options, &stop) {
        Ok(acted) => Answer::Acted(Box::new(acted)),
        Err(ReplayError::Run(e)) => return Err(chase::failed(e)),
        Err(e @ (ReplayError::Fit | ReplayError::Disturbed)) => Answer::Failed(e.to_string()),
    };
    print_json(&answer)?;
    Ok(ExitCode::SUCCESS)
}

/// What `tailscope locality` found, and the bytes that say so.
fn read(args: &Predict) -> Result<(Found, Vec<u8>)> {
    let path = args.file.display();
    let bytes =
        fs::read(&args.file).map_err(|e| Failure::usage(format!("can't read {path}: {e}")))?;
    let found: Found = serde_json::from_slice(&bytes).map_err(|e| {
        Failure::usage(format!(
            "{path} is no report of `tailscope locality --json`: {e}"
        ))
    })?;
    if found.kind != "locality" {
        return Err(Failure::usage(format!(
            "{path} is a report of `{}`; write one with `tailscope locality -p PID --phase FUNCTION --json`",
            found.kind
        )));
    }
    let apart = found.visits.as_ref().and_then(|visits| visits.apart_ns);
    let distance = found.distance.as_ref();
    let is_sound = distance.is_none_or(|it| it.line_ns.iter().all(|ns| *ns > 0.0))
        && found.demands.as_ref().is_none_or(Demands::is_sound)
        && apart.is_none_or(|ns| ns > 0.0)
        && found.counts.in_kernel <= found.counts.samples;
    if !is_sound {
        return Err(Failure::usage(format!(
            "{path} has numbers that can't be: it was not written by `tailscope locality`"
        )));
    }
    match &found.phase {
        Some(_) => Ok((found, bytes)),
        None => Err(Failure::usage(format!(
            "{path} has no phase; repeat `tailscope locality` with --phase FUNCTION"
        ))),
    }
}

impl Found {
    /// The phase, what a round demands, and how long it takes; or what is not known of it.
    fn whole(self) -> Result<(String, Demands, Round), String> {
        let phase = self.phase.unwrap_or_default();
        let demands = self.demands.ok_or_else(|| {
            format!("too few accesses are known in `{phase}` or outside of it; sample longer")
        })?;
        if demands.found.threads < FEWEST_THREADS {
            return Err(
                "one thread does nearly all of the work, so nothing moves between CPUs".into(),
            );
        }
        let visits = self.visits.unwrap_or_default();
        let counted = || match &visits.refused {
            Some(why) => format!("the kernel refused to count: {why}"),
            None => format!(
                "{} entries were counted: it is inlined, was entered before, is entered too often, or \
                 --no-watch was given",
                visits.counted
            ),
        };
        let cpu_ns = visits
            .apart_ns
            .ok_or_else(|| format!("how often `{phase}` is entered is not known; {}", counted()))?;
        if cpu_ns > LONGEST_NS {
            return Err(format!(
                "`{phase}` is entered once in {:.0} ms: choose a function that is called more often",
                cpu_ns / 1e6
            ));
        }
        let in_kernel = self.counts.in_kernel as f64 / self.counts.samples.max(1) as f64;
        Ok((phase, demands, Round { cpu_ns, in_kernel }))
    }
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    let prediction = &report.prediction;
    let [phase_ns, rest_ns] = prediction.visit_ns;
    let _ = writeln!(
        text,
        "A round has {:.1} us in `{}` and {:.1} us outside, in user space. It was replayed with {} \
         sessions, {} and {} accesses, and {:.0} KiB of lines.",
        phase_ns / 1e3,
        report.phase,
        rest_ns / 1e3,
        count(report.sessions as u64),
        count(prediction.accesses[0] as u64),
        count(prediction.accesses[1] as u64),
        prediction.bytes as f64 / 1024.0,
    );
    let _ = writeln!(text, "\n{:<12}{:>34}", "mode", "speed against sync");
    for gain in &prediction.gains {
        let _ = writeln!(text, "{:<12}{:>34}", gain.mode, said(gain));
    }
    if let Some(moved) = report.line_ns.moved() {
        let _ = write!(text, "\n{moved}\n");
    }
    for gain in prediction
        .gains
        .iter()
        .filter(|gain| !gain.ratio.is_clear())
    {
        let _ = write!(
            text,
            "\nCan't tell whether `{}` is faster: its interval has both signs.",
            gain.mode
        );
        let _ = match gain.wants {
            Some(wants) => writeln!(
                text,
                " About {} accesses would settle it; {} are known. Sample longer.",
                count(wants),
                count(prediction.known)
            ),
            None => writeln!(
                text,
                " More samples would hardly settle it: there is next to no gain, or processes with the \
                 same lines differ by as much here."
            ),
        };
    }
    text
}

/// `+12 % (6 to 17)`.
fn said(gain: &Gain) -> String {
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let Interval { value, low, high } = gain.ratio;
    format!(
        "{:+.0} % ({:+.0} to {:+.0})",
        percent(value),
        percent(low),
        percent(high)
    )
}

#[cfg(test)]
mod tests {
    use tailscope_locality::chase::experiment::Point;

    use super::*;

    fn gain(mode: &'static str, [low, value, high]: [f64; 3], wants: Option<u64>) -> Gain {
        let ratio = Interval { value, low, high };
        Gain {
            mode: mode.into(),
            ratio,
            wants,
        }
    }

    #[test]
    fn the_text_has_each_gain_and_what_would_settle_an_open_one() {
        let point = Point {
            working_set: 65_536,
            updates: 0.1,
            accesses: 4_000,
            rounds: 20,
            segments: 60,
            dropped: 0,
            speeds: Vec::new(),
            line_ns: None,
            visit_ns: Vec::new(),
        };
        let prediction = Prediction {
            gains: vec![
                gain("yield", [0.99, 1.03, 1.07], Some(70_000)),
                gain("delegate", [1.22, 1.31, 1.41], None),
            ],
            visit_ns: [94_200.0, 88_500.0],
            accesses: [21_180.0, 20_055.0],
            bytes: 1_546_240,
            known: 40_000,
            point,
        };
        insta::assert_snapshot!(text(&Report {
            phase: "process_command".into(),
            cpus: vec![0, 1],
            sessions: 100,
            line_ns: LineNs::default(),
            prediction,
        }));
    }
}
