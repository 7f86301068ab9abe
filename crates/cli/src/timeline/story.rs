//! `tailscope timeline story`: the stories as text.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use tailscope_timeline::{Gap, Stories, Story, analyze, ms, picture};

use super::args::TellStory;
use crate::page::Report;
use crate::streams::{print_json_line, print_laid_out};
use crate::units::time;

/// In text, gaps below this share of the latency are summed up.
const SHORT: u64 = 100;
/// Stories whose picture is in the JSON: each may be as large as a megabyte.
const PICTURES: usize = 20;

/// Tells.
pub fn run(args: &TellStory) -> Result<ExitCode> {
    let trace = super::open(&args.trace)?;
    let mut told = analyze(&trace, args.slower, args.count);
    if args.json {
        for story in told.stories.iter_mut().take(PICTURES) {
            story.picture = Some(picture(&trace, story));
        }
        print_json_line(&Report {
            kind: "timeline",
            report: &told,
        })?;
    } else {
        let mut text = Vec::new();
        write(&told, &mut text)?;
        print_laid_out(&String::from_utf8_lossy(&text))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write(told: &Stories, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "{} requests in {}, {} took {} or longer",
        told.requests,
        time(told.to_ns.saturating_sub(told.whole_from_ns)),
        told.slow,
        ms(told.slower_ns)
    )?;
    if told.in_earlier_windows > 0 {
        writeln!(
            out,
            "{} more requests ended before this window; an earlier window has them",
            told.in_earlier_windows
        )?;
    }
    if told.sent_again > 0 {
        writeln!(
            out,
            "after {} answers and a second of silence, the server sent more data; if that data was part of the answer, \
             the request took longer than shown",
            told.sent_again
        )?;
    }
    for loss in &told.losses {
        writeln!(out, "lost: {loss}")?;
    }
    if told.requests == 0 {
        writeln!(
            out,
            "no request was seen from start to end: the processes were idle, or a thread answers that did not receive the request"
        )?;
    }
    for (number, story) in (1..).zip(&told.stories) {
        write_story(number, story, out)?;
    }
    Ok(())
}

fn write_story(number: usize, story: &Story, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\n{number}. {}", story.sentence)?;
    write!(out, "   {}, thread {}", story.thread, story.tid)?;
    match &story.span {
        Some(span) => writeln!(out, ": {span}")?,
        None => writeln!(out)?,
    }
    if !story.from_packet && story.span.is_none() {
        writeln!(
            out,
            "   its packet was not seen, so it starts later here than for the client"
        )?;
    }
    if let Some(later) = story.sent_again_ns {
        writeln!(
            out,
            "   the server sent more data {} after this answer, without another request",
            time(later)
        )?;
    }
    for jvm in &story.jvms {
        writeln!(out, "   meanwhile in {}", jvm.words())?;
    }
    let mut short: (u64, usize) = (0, 0);
    for gap in &story.gaps {
        if gap.ns < story.latency_ns / SHORT {
            short = (short.0 + gap.ns, short.1 + 1);
        } else {
            write_gap(gap, out)?;
        }
    }
    if short.1 > 0 {
        writeln!(
            out,
            "   {:>12}   {:>12}   in {} shorter gaps",
            "",
            ms(short.0),
            short.1
        )?;
    }
    for loss in &story.losses {
        writeln!(out, "   lost here: {loss}")?;
    }
    Ok(())
}

fn write_gap(gap: &Gap, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "   {:>12}   {:>12}   {}",
        format!("+{}", ms(gap.at_ns)),
        ms(gap.ns),
        gap.words
    )
}
