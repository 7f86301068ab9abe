//! Pages of observed processes that were moved to be read by a load, and go back at the end.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tailscope_signals::moved::MovedPage;

use crate::signal::Signal;

/// What moving a page took.
#[derive(Debug, Clone, Serialize)]
pub struct Move {
    /// The signal that lies in it.
    pub signal: String,
    /// For how many µs its process stood still when it was moved; null: an observation before left
    /// it moved.
    pub there_us: Option<f64>,
    /// And when it went back; null: it did not, for the process has ended or a notice says why.
    pub back_us: Option<f64>,
    /// How often it, or one of its threads, was stopped for all that: in vain too.
    pub stops: u32,
    /// The longest of these stops, in µs.
    pub longest_us: f64,
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Each page once, with the name of a signal in it.
pub(crate) fn pages<'s>(
    signals: impl Iterator<Item = &'s Signal>,
) -> Vec<(&'s str, &'s Arc<MovedPage>)> {
    let mut pages: Vec<(&str, &Arc<MovedPage>)> = Vec::new();
    for signal in signals {
        let Some(page) = &signal.page else { continue };
        if !pages.iter().any(|(_, known)| Arc::ptr_eq(known, page)) {
            pages.push((&signal.name, page));
        }
    }
    pages
}

/// Puts all of them back, and tells what that took and what should be known of it.
pub(crate) fn put_back(pages: &[(&str, &Arc<MovedPage>)]) -> (Vec<Move>, Vec<String>) {
    let mut notices = Vec::new();
    let moves =
        pages.iter().map(|(signal, page)| {
            let back = page.put_back();
            match &back {
            Ok(Some((_, children))) if !children.is_empty() => notices.push(format!(
                "{signal}: the process made a child meanwhile ({}), which wrote into the same page \
                 as its parent until now",
                children.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
            )),
            Ok(_) => {}
            Err(why) => notices.push(format!(
                "{signal}: its page is not back: {why}; it stays where it is, memory like any \
                 other, and the next observation of it puts it back"
            )),
        }
            Move {
                signal: (*signal).to_owned(),
                there_us: page.stood().map(microseconds),
                back_us: back.ok().flatten().map(|(stood, _)| microseconds(stood)),
                stops: page.stops().count(),
                longest_us: microseconds(page.stops().longest()),
            }
        });
    (moves.collect(), notices)
}
