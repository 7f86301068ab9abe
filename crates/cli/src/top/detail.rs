//! The page of one kind: its causes in time a span, and its p99 over the last minutes.

use super::bar;
use super::code;
use super::line::{Ink, Line, Room, pad, right};
use super::snapshot::{Figures, mean};
use super::text::{quantile_texts, rate_text};
use super::view::View;
use crate::units::count;

/// The page.
pub fn page(view: &View, room: &Room) -> Vec<Line> {
    let kinds = view.kinds();
    let Some(kind) = kinds.get(view.chosen()) else {
        return vec![
            Line::default(),
            Line::plain("  no kind is selected (enter: back)"),
        ];
    };
    let figures = kind.of(view.period);
    let [p50, p99, p999] = quantile_texts(figures, room);
    let name = room.spell(&kind.name);
    let mut lines = vec![
        Line::new(format!("  {name}"), Ink::Strong),
        Line::plain(format!(
            "  {} spans, {}/s   p50 {p50}   p99 {p99}   p99.9 {p999}",
            count(figures.spans),
            rate_text(figures.rate)
        )),
        line_of_p99(view, &kind.name, room),
    ];
    let (causes, rest) = table(view, figures, room);
    lines.extend(causes);
    if view.stacks {
        lines.extend(code::table(kind, room));
    }
    lines.extend(rest);
    lines
}

/// p99 of the last seconds, picture by picture.
fn line_of_p99(view: &View, name: &str, room: &Room) -> Line {
    let history = view.history.get(name);
    let width = room.width.saturating_sub(30).clamp(10, 120);
    let values: Vec<u64> = history.into_iter().flatten().copied().collect();
    let latest = &values[values.len().saturating_sub(width)..];
    let most = latest.iter().copied().max().unwrap_or(0);
    let levels: Vec<char> = room.glyphs("▁▂▃▄▅▆▇█", "_.-=+*%#").chars().collect();
    let drawn: String = latest
        .iter()
        .map(|value| match (value, most) {
            (0, _) => ' ',
            (value, most) => levels[(value * (levels.len() as u64 - 1) / most.max(1)) as usize],
        })
        .collect();
    Line::plain(format!(
        "  p99 {drawn} (highest {})",
        room.time(most as f64)
    ))
}

/// A row a part: of all spans, of the tail, and what share of the tail's time it is. And those that have
/// none.
fn table(view: &View, figures: &Figures, room: &Room) -> (Vec<Line>, Vec<Line>) {
    let least = room.glyphs("≥ p99", ">= p99");
    let mut bar_line = Line::plain(format!("  spans {least}  "));
    bar::draw(&mut bar_line, &figures.tail, room.width.saturating_sub(18));
    let mut lines = vec![
        bar_line,
        Line::new(
            format!(
                "    {}{}{}{}",
                pad("MEAN TIME A SPAN", 16),
                right("all", 10),
                right(least, 13),
                right("share", 10)
            ),
            Ink::Strong,
        ),
    ];
    let mut parts: Vec<_> = bar::parts()
        .map(|part| {
            (
                part,
                bar::sum_ns(&figures.tail, part),
                bar::sum_ns(&figures.all, part),
            )
        })
        .collect();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.2.total_cmp(&a.2)));
    let (mut never, mut unknown) = (Vec::new(), Vec::new());
    for (part, tail, all) in parts {
        if part.is_some_and(|cause| !view.measured.contains(cause)) {
            unknown.push(bar::name(part));
            continue;
        }
        if all <= 0.0 {
            never.push(bar::name(part));
            continue;
        }
        let share = tail / figures.tail.wall_ns.max(1.0) * 100.0;
        let mut line = Line::plain("  ");
        line.push(bar::letter(part).to_string(), Ink::Part(part));
        line.push(
            format!(
                " {}{}{}{}",
                pad(bar::name(part), 16),
                right(&room.time(mean(all, &figures.all)), 10),
                right(&room.time(mean(tail, &figures.tail)), 13),
                right(&format!("{share:.1} %"), 10)
            ),
            Ink::Plain,
        );
        lines.push(line);
    }
    let rest = [("never seen", never), ("not measured here", unknown)];
    let rest = rest.into_iter().filter(|(_, names)| !names.is_empty());
    let rest = rest.flat_map(|(what, names)| wrapped(what, &names, room.width));
    (lines, rest.collect())
}

/// `what: name, name, …` on as many lines as it takes.
fn wrapped(what: &str, names: &[&str], width: usize) -> Vec<Line> {
    let mut texts = vec![format!("  {what}:")];
    for (place, name) in names.iter().enumerate() {
        let comma = if place + 1 < names.len() { "," } else { "" };
        match texts.last_mut() {
            Some(text) if text.len() + name.len() + 2 <= width => {
                text.push_str(&format!(" {name}{comma}"));
            }
            _ => texts.push(format!("    {name}{comma}")),
        }
    }
    texts.into_iter().map(Line::plain).collect()
}
