//! `tailscope top`: what spans are like now, on a terminal, as text or as JSON.
//!
//! It is a recording without a ledger. After each poll of the recorder it reads keys, which change
//! the `View`. Once an interval it takes a `Snapshot` of the live statistics. `picture.rs` makes
//! lines of both. The sums of causes by eighths of an octave are in `Tally` (`crates/record`).

mod args;
mod bar;
mod code;
mod detail;
mod line;
mod picture;
mod snapshot;
mod terminal;
#[cfg(test)]
mod tests;
mod text;
mod view;

use std::env;
use std::io::{self, IsTerminal, Write, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use tailscope_record::{End, Listener, Live, Prints, Progress};

use crate::console::Console;
use crate::streams::say;
use crate::subject::{self, Kept, Session};
use line::Room;
use picture::picture;
use snapshot::{Period, Snapshot};
use terminal::{Input, Terminal};
use view::{View, Wish};

pub use args::Top;
pub use line::fit;

/// Shows until it is told to stop.
pub fn run(args: Top) -> Result<ExitCode> {
    let stop = subject::stop_on_signals()?;
    let on_terminal = !args.batch
        && !args.json
        && stdout().is_terminal()
        && env::var_os("TERM").is_some_and(|term| term != "dumb");
    let prints = if on_terminal {
        Prints::Nowhere
    } else {
        Prints::Through
    };
    let kept = Kept {
        stacks: args.stacks,
        ..Kept::default()
    };
    let mut session = Session::begin(&args.subject, kept, prints)?;
    let mut watch = Watch {
        view: View::new(
            words(&args, &session),
            session.recorder.measured(),
            args.sort,
            args.filter.clone(),
        ),
        place: match (on_terminal, args.json) {
            (true, _) => Place::Terminal(Terminal::take()?),
            (false, true) => Place::Json,
            (false, false) => Place::Text,
        },
        console: Console::stdout(),
        interval: args.interval,
        next: Instant::now() + args.interval,
        left: args.count,
        printed: 0,
        latest: Snapshot::default(),
        last_look: false,
        stop: Arc::clone(&stop),
    };
    watch.view.stacks = args.stacks.is_some();
    watch.view.colour = on_terminal && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let end = session.recorder.run(args.duration, &stop, &mut watch);
    watch.last_look = true;
    let (finished, status) = session.finish(&mut watch);
    if let Ok(progress) = &finished {
        watch.view.lost = progress.lost;
    }
    watch.finish(matches!(end, Ok(End::Exited | End::Duration)));
    if matches!(end, Ok(End::Exited)) {
        say!("tailscope: every process has ended");
    }
    if let Some(status) = status.filter(|status| !status.success()) {
        say!("tailscope: the command ended with {status}");
    }
    end.map_err(subject::failure)?;
    finished.map_err(subject::failure)?;
    Ok(ExitCode::SUCCESS)
}

/// What is looked at, in words for the title.
fn words(args: &Top, session: &Session) -> String {
    let pids = args.subject.pids.iter().map(ToString::to_string);
    let command = args.subject.command.first();
    let what: Vec<_> = pids
        .chain(command.map(|name| name.to_string_lossy().into_owned()))
        .collect();
    let spans: Vec<_> = session.spans().iter().map(ToString::to_string).collect();
    format!("{}  {}", what.join(" "), spans.join(" "))
}

/// Where pictures go.
enum Place {
    Terminal(Terminal),
    Text,
    Json,
}

/// The person's side of a recording.
struct Watch {
    view: View,
    place: Place,
    console: Console,
    interval: Duration,
    /// When the next picture is due.
    next: Instant,
    /// Pictures that are still wanted.
    left: Option<u64>,
    printed: u64,
    /// The latest figures, also while the view is frozen.
    latest: Snapshot,
    last_look: bool,
    stop: Arc<AtomicBool>,
}

impl Watch {
    fn quit(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn room(&self) -> Room {
        let (width, height) = match &self.place {
            Place::Terminal(_) => {
                let (width, height) = Terminal::size();
                (width, Some(height))
            }
            _ => (self.console.width, None),
        };
        Room {
            width,
            height,
            unicode: self.console.unicode,
        }
    }

    /// Takes what keys say; whether anything did.
    fn hear(&mut self) -> bool {
        let mut heard = false;
        while let Place::Terminal(terminal) = &mut self.place
            && let Some(input) = terminal.input()
        {
            heard = true;
            if let Input::Key(key) = input
                && self.view.press(key) == Wish::Quit
            {
                self.quit();
            }
        }
        heard
    }

    fn show(&mut self) {
        let room = self.room();
        let shown = match &self.place {
            Place::Terminal(terminal) => {
                terminal.show(&picture(&self.view, &room), self.view.colour)
            }
            Place::Text => print_text(&self.view, &room, self.printed > 0),
            Place::Json => writeln!(
                stdout().lock(),
                "{}",
                self.view
                    .snapshot
                    .json(self.view.lost, self.view.measured, self.view.stacks)
            ),
        };
        self.printed += 1;
        // A pipe or a terminal that is gone ends it, as Ctrl-C would.
        if shown.is_err() {
            self.quit();
        }
    }

    /// Gives the terminal back. Where it ended by itself, the last figures are left to be read.
    fn finish(&mut self, by_itself: bool) {
        let was_terminal = matches!(self.place, Place::Terminal(_));
        if was_terminal {
            self.place = Place::Text;
        }
        if by_itself && self.left != Some(0) {
            self.view.snapshot = std::mem::take(&mut self.latest);
            self.view.period = Period::Total;
            self.view.page = view::Page::List;
            self.view.frozen = false;
            self.show();
        }
    }
}

fn print_text(view: &View, room: &Room, again: bool) -> io::Result<()> {
    let mut out = stdout().lock();
    if again {
        writeln!(out)?;
    }
    for line in picture(view, room) {
        writeln!(out, "{}", line.text().trim_end())?;
    }
    out.flush()
}

impl Listener for Watch {
    fn show(&mut self, live: &Live) {
        if self.last_look {
            self.latest = Snapshot::take(live);
            return;
        }
        let mut changed = self.hear();
        let now = Instant::now();
        if now >= self.next {
            self.next = (self.next + self.interval).max(now);
            self.view.update(Snapshot::take(live));
            changed = true;
            self.left = self.left.map(|left| left.saturating_sub(1));
            if self.left == Some(0) {
                self.quit();
            }
        }
        if changed || (self.printed == 0 && matches!(self.place, Place::Terminal(_))) {
            self.show();
        }
    }

    fn tell(&mut self, progress: &Progress, notices: &[String]) {
        if !self.view.frozen {
            self.view.lost = progress.lost;
        }
        for notice in notices {
            if !matches!(self.place, Place::Terminal(_)) {
                say!("tailscope: {notice}");
            }
        }
        if let Some(notice) = notices.last() {
            self.view.notice = notice.clone();
        }
    }
}
