//! `tailscope record`.

use std::io::{IsTerminal, Write, stderr};
use std::process::ExitCode;

use anyhow::Result;
use tailscope_record::{End, Listener, Place, Prints, Progress, RecordError, SpanSource};
use tailscope_trace::Existing;

use crate::args::Record;
use crate::subject::{self, Session};
use crate::units::{bytes, count, time};

/// Records, and says how it went.
pub fn run(args: Record) -> Result<ExitCode> {
    let stop = subject::stop_on_signals()?;
    let place = Place {
        folder: args.output.clone(),
        existing: if args.overwrite {
            Existing::Overwrite
        } else {
            Existing::Refuse
        },
    };
    let mut session = Session::begin(
        &args.subject,
        Some(place),
        args.budget,
        args.counters.as_deref(),
        Prints::Through,
    )?;
    let mut screen = Screen::new(args.quiet);
    screen.begin(&session.spans);
    let end = session.recorder.run(args.duration, &stop, &mut screen);
    let (progress, status) = session.finish(&mut screen);
    if let Some(status) = status.filter(|status| !status.success()) {
        eprintln!("tailscope: the command ended with {status}; what it did is recorded");
    }
    screen.end(&end, progress.as_ref().ok(), &args);
    end.map_err(subject::failure)?;
    progress.map_err(subject::failure)?;
    Ok(ExitCode::SUCCESS)
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

impl Listener for Screen {
    fn tell(&mut self, progress: &Progress, notices: &[String]) {
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
