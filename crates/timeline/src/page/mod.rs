//! One request as a page: a file of HTML that needs nothing else. On top the sentence, then the
//! request's gaps, below them the CPUs with who had them, arrows for wake-ups, and all gaps in a table.

mod lanes;

use std::fmt::Write;

use crate::story::{Gap, Kind, Story, ms, on_top_name};
use crate::trace::Trace;
use lanes::{Bar, Lanes};

/// The look that all of Tailscope's pages have, and what only this one has.
const STYLE: [&str; 2] = [
    include_str!("../../../../python/tailscope/present/page.css"),
    include_str!("page.css"),
];
const WIDTH: f64 = 1200.0;
const LEFT: f64 = 90.0;
const BAR: f64 = 30.0;
const LANE: f64 = 58.0;
/// Before and after the request a little is shown, as a share of its length.
const AROUND: u64 = 25;
/// A bar narrower than this is drawn as wide as this, so that it can be seen.
const NARROW: f64 = 0.6;
/// About so many points a letter takes.
const LETTER: f64 = 7.0;

struct Scale {
    from: u64,
    to: u64,
}

impl Scale {
    fn x(&self, at: u64) -> f64 {
        let share = at.saturating_sub(self.from) as f64 / (self.to - self.from).max(1) as f64;
        LEFT + share.min(1.0) * (WIDTH - LEFT - 10.0)
    }
}

/// How a gap is coloured: red is what a request should not have to wait for.
fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::Running => "own",
        Kind::Wire | Kind::ReceiveSoftirq | Kind::Transmit => "net",
        Kind::Unknown => "unknown",
        _ => "late",
    }
}

/// Text that is no markup: what a process writes is foreign.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            other => safe.push(other),
        }
    }
    safe
}

/// The page of a story of this trace.
#[must_use]
pub fn page(trace: &Trace, story: &Story) -> String {
    let around = (story.latency_ns / AROUND).max(1000);
    let scale = Scale {
        from: story.begin_ns.saturating_sub(around),
        to: story.begin_ns + story.latency_ns + around,
    };
    let mut threads: Vec<u32> = story.gaps.iter().map(|gap| gap.tid).collect();
    threads.push(story.tid);
    threads.retain(|tid| *tid != 0);
    let lanes = lanes::collect(trace, scale.from, scale.to, &threads);
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title}</title>\n<style>\n{style}</style></head><body><main>\n<h1>{title}</h1>\n\
         <p>{thread}, thread {tid}; {process} events on Linux {kernel}</p>\n",
        title = escaped(&story.sentence),
        style = STYLE.concat(),
        thread = escaped(&story.thread),
        tid = story.tid,
        process = trace.about.all_parts().map(|part| part.events).sum::<u64>(),
        kernel = escaped(&trace.about.kernel),
    );
    for jvm in &story.jvms {
        let _ = writeln!(text, "<p>Meanwhile in {}</p>", escaped(&jvm.words()));
    }
    if !story.from_packet && story.span.is_none() {
        text +=
            "<p class=\"lost\">Its packet was not seen: it begins later than for the client.</p>\n";
    }
    for loss in &story.losses {
        let _ = writeln!(text, "<p class=\"lost\">Lost here: {}</p>", escaped(loss));
    }
    text += "<section>\n";
    picture(&mut text, trace, story, &lanes, &scale, &threads);
    text += "</section>\n<section>\n";
    table(&mut text, story);
    text + "</section>\n</main></body></html>\n"
}

fn bar(text: &mut String, class: &str, y: f64, height: f64, span: (f64, f64), name: &str) {
    let (from, to) = span;
    let width = (to - from).max(NARROW);
    let name = escaped(name);
    let _ = writeln!(
        text,
        "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
         height=\"{height:.1}\"><title>{name}</title></rect>"
    );
    if (name.chars().count() as f64) * LETTER + 8.0 < width && height > 15.0 {
        let (x, y) = (from + 5.0, y + height / 2.0 + 4.0);
        let _ = writeln!(
            text,
            "<text class=\"inside\" x=\"{x:.1}\" y=\"{y:.1}\">{name}</text>"
        );
    }
}

fn picture(
    text: &mut String,
    trace: &Trace,
    story: &Story,
    lanes: &Lanes,
    scale: &Scale,
    threads: &[u32],
) {
    let top = 40.0;
    let height = top + LANE * (1.0 + lanes.cpus.len() as f64) + 20.0;
    let _ = writeln!(
        text,
        "<div class=\"scroll\" tabindex=\"0\"><svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\
         <defs><marker id=\"tip\" markerWidth=\"8\" markerHeight=\"8\" refX=\"7\" refY=\"4\" orient=\"auto\">\
         <path d=\"M0 0 8 4 0 8z\" fill=\"currentColor\"/></marker></defs>",
        escaped(&story.sentence)
    );
    let _ = writeln!(text, "<text x=\"0\" y=\"{}\">request</text>", top + 20.0);
    for gap in &story.gaps {
        let (from, to) = (
            story.begin_ns + gap.at_ns,
            story.begin_ns + gap.at_ns + gap.ns,
        );
        let name = format!("{}: {}", ms(gap.ns), gap.name);
        bar(
            text,
            class(gap.kind),
            top,
            BAR,
            (scale.x(from), scale.x(to)),
            &name,
        );
    }
    let rows: Vec<u32> = lanes.cpus.keys().copied().collect();
    let y_of = |cpu: u32| {
        let row = rows
            .iter()
            .position(|other| *other == cpu)
            .unwrap_or_default();
        top + LANE * (1.0 + row as f64)
    };
    for (&cpu, lane) in &lanes.cpus {
        let y = y_of(cpu);
        let _ = writeln!(text, "<text x=\"0\" y=\"{}\">CPU {cpu}</text>", y + 20.0);
        let _ = writeln!(
            text,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{0}\" y2=\"{0}\"/>",
            y + BAR
        );
        for &Bar { from, to, what } in &lane.threads {
            let ours = if threads.contains(&what) {
                "self"
            } else {
                "other"
            };
            let span = (scale.x(from), scale.x(to));
            bar(text, ours, y, BAR, span, &trace.thread(what));
        }
        for &Bar { from, to, what } in &lane.on_top {
            let span = (scale.x(from), scale.x(to));
            bar(text, "top", y, 8.0, span, &on_top_name(trace, what));
        }
    }
    for wake_up in lanes
        .wake_ups
        .iter()
        .filter(|wake_up| wake_up.at >= scale.from)
    {
        let (x1, x2) = (scale.x(wake_up.at), scale.x(wake_up.runs));
        let (y1, y2) = (y_of(wake_up.from_cpu) + BAR, y_of(wake_up.on_cpu) + BAR);
        let below = y1.max(y2) + 18.0;
        let _ = writeln!(
            text,
            "<path class=\"arrow\" marker-end=\"url(#tip)\" d=\"M{x1:.1} {y1:.1} C{x1:.1} {below:.1} {x2:.1} {below:.1} {x2:.1} {y2:.1}\">\
             <title>woken, and running after {}</title></path>",
            ms(wake_up.runs - wake_up.at)
        );
    }
    let begin = story.begin_ns;
    // Those that fall together share a line of text.
    let mut ends_at = f64::MIN;
    let mut marks = vec![
        (begin, "packet"),
        (begin + story.received_ns, "receive"),
        (begin + story.sent_ns, "send"),
        (begin + story.left_ns, "device"),
    ];
    if story.to_client {
        marks.push((begin + story.latency_ns, "client"));
    }
    if story.span.is_some() {
        marks = vec![(begin, "begin"), (begin + story.latency_ns, "end")];
    }
    for (at, name) in marks {
        let x = scale.x(at);
        let _ = writeln!(
            text,
            "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"24\" y2=\"{}\"><title>{name}</title></line>",
            height - 12.0
        );
        if x > ends_at {
            let _ = writeln!(
                text,
                "<text x=\"{:.1}\" y=\"18\">{name}</text>",
                x.min(WIDTH - 50.0)
            );
            ends_at = x + name.len() as f64 * LETTER + 6.0;
        }
    }
    *text += "</svg></div>\n<p><i class=\"late\"></i>held up <i class=\"own\"></i>its own work \
              <i class=\"net\"></i>the network's stack <i class=\"self\"></i>its threads \
              <i class=\"other\"></i>other threads <i class=\"top\"></i>interrupts and softirqs</p>\n";
}

fn table(text: &mut String, story: &Story) {
    *text += "<table><thead><tr><th>after</th><th>for</th><th>what</th></tr></thead><tbody>\n";
    for Gap {
        at_ns,
        ns,
        kind,
        name,
        ..
    } in &story.gaps
    {
        let _ = writeln!(
            text,
            "<tr><td class=\"number\">{}</td><td class=\"number\">{}</td><td><i class=\"{}\"></i>{}</td></tr>",
            ms(*at_ns),
            ms(*ns),
            class(*kind),
            escaped(name)
        );
    }
    *text += "</tbody></table>\n";
}
