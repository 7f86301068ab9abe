//! `tailscope timeline story`: the stories as text.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use tailscope_timeline::{Gap, Stories, Story, ms, tell};

use super::args::TellStory;
use crate::streams;
use crate::units::time;

/// In text, gaps below this share of the latency are summed up.
const SHORT: u64 = 100;

/// Tells.
pub fn run(args: &TellStory) -> Result<ExitCode> {
    let trace = super::open(&args.trace)?;
    let told = tell(&trace, args.slower, args.count);
    if args.json {
        streams::json_line(&told)?;
    } else {
        let mut text = Vec::new();
        write(&told, &mut text)?;
        streams::lay_out(&String::from_utf8_lossy(&text))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write(told: &Stories, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{} requests in {}, {} took {} or longer",
        told.requests,
        time(told.to_ns.saturating_sub(told.whole_from_ns)),
        told.slow,
        ms(told.slower_ns)
    )?;
    for loss in &told.losses {
        writeln!(out, "lost: {loss}")?;
    }
    if told.requests == 0 {
        writeln!(
            out,
            "no request was followed from begin to end: were the processes idle, or does a thread answer that none was received on?"
        )?;
    }
    for (number, story) in (1..).zip(&told.stories) {
        write_story(number, story, out)?;
    }
    Ok(())
}

fn write_story(number: usize, story: &Story, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\n{number}. {}", story.sentence)?;
    write!(out, "   {}, thread {}", story.thread, story.tid)?;
    match &story.span {
        Some(span) => writeln!(out, ": {span}")?,
        None => writeln!(out)?,
    }
    if !story.from_packet && story.span.is_none() {
        writeln!(
            out,
            "   its packet was not seen: it begins later than for the client"
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

fn write_gap(gap: &Gap, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "   {:>12}   {:>12}   {}",
        format!("+{}", ms(gap.at_ns)),
        ms(gap.ns),
        gap.name
    )
}
