//! `tailscope record`.

mod args;
mod overhead;

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use anyhow::Result;
use tailscope_record::{End, Listener, Place, Prints, Progress, RecordError, SpanSource};
use tailscope_trace::Existing;

use crate::screen::Screen;
use crate::streams::say;
use crate::subject::{self, Kept, Session};
use crate::units::{bytes, count, time};

pub use args::Record;

/// Records, and says how it went.
pub fn run(args: Record) -> Result<ExitCode> {
    let stop = subject::stop_on_signals()?;
    if let Some(budget) = args.overhead {
        return overhead::run(&args, budget, &stop);
    }
    let mut session = Session::begin(&args.subject, kept(&args), Prints::Through)?;
    let mut screen = Screen::new(args.quiet);
    begin(&screen, session.spans());
    let end = session.recorder.run(args.duration, &stop, &mut screen);
    let (progress, status) = session.finish(&mut screen);
    if let Some(status) = status.filter(|status| !status.success()) {
        say!("tailscope: the command ended with {status}; its spans are recorded");
    }
    self::end(&screen, &end, progress.as_ref().ok(), &args);
    end.map_err(subject::failure)?;
    progress.map_err(subject::failure)?;
    Ok(match status {
        Some(status) if !args.ignore_exit_code => passed_on(status),
        _ => ExitCode::SUCCESS,
    })
}

/// What the ledger gets.
fn kept(args: &Record) -> Kept<'_> {
    let existing = match args.overwrite {
        true => Existing::Overwrite,
        false => Existing::Refuse,
    };
    Kept {
        ledger: Some(Place {
            folder: args.output.clone(),
            existing,
        }),
        budget: args.budget,
        counters: args.counters.as_deref(),
        traces: args.traceparent,
        stacks: args.stacks,
        pauses: args.overhead.is_some(),
    }
}

/// A command's exit code as a shell passes it on: 128 and the signal's number where one ended it.
fn passed_on(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}

fn begin(screen: &Screen, spans: &[SpanSource]) {
    let spans: Vec<_> = spans.iter().map(ToString::to_string).collect();
    screen.say(&format!("recording {} (Ctrl-C ends it)", spans.join(", ")));
}

fn end(
    screen: &Screen,
    end: &Result<End, RecordError>,
    progress: Option<&Progress>,
    args: &Record,
) {
    screen.clear();
    match end {
        Ok(End::Exited) => screen.say("every process has ended; the recording is kept"),
        Ok(End::Stopped) => screen.say("stopped; the recording is kept"),
        _ => {}
    }
    let Some(progress) = progress else { return };
    screen.say_figures(&summary(progress));
    if let Some(missing) = missing(progress) {
        screen.say(&missing);
    }
    let folder = args.output.display();
    screen.say(&if progress.rows == 0 {
        "no span was recorded: the process was idle, or --span selects the wrong spans".to_owned()
    } else {
        format!("wrote {folder}\nnext: tailscope explain {folder}")
    });
}

impl Listener for Screen {
    fn tell(&mut self, progress: &Progress, notices: &[String]) {
        notices.iter().for_each(|notice| self.notice(notice));
        self.progress(progress.elapsed, &summary(progress));
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

/// The requests that are no rows, with their share of all.
fn missing(progress: &Progress) -> Option<String> {
    let missing: u64 = progress.not_rows.iter().map(|(_, count)| count).sum();
    if missing == 0 {
        return None;
    }
    let share = 100.0 * missing as f64 / (missing + progress.rows) as f64;
    let reasons: Vec<_> = progress
        .not_rows
        .iter()
        .map(|(reason, number)| format!("{} {reason}", count(*number)))
        .collect();
    Some(format!(
        "{} requests ({share:.1} %) have no row: {}",
        count(missing),
        reasons.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_without_a_row_are_said_with_their_share() {
        let mut progress = Progress {
            rows: 90,
            ..Progress::default()
        };
        assert_eq!(missing(&progress), None);
        progress.not_rows = vec![("pipelined", 7), ("without an answer", 3)];
        let said = "10 requests (10.0 %) have no row: 7 pipelined, 3 without an answer";
        assert_eq!(missing(&progress).as_deref(), Some(said));
    }

    #[test]
    fn exit_codes_are_passed_on_as_a_shell_does() {
        for (wait_status, code) in [(0, 0), (7 << 8, 7), (255 << 8, 255), (9, 137), (15, 143)] {
            let passed = passed_on(ExitStatus::from_raw(wait_status));
            assert_eq!(passed, ExitCode::from(code), "{wait_status}");
        }
    }
}
