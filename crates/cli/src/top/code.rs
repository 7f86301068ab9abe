//! The functions in which slow spans were: of a kind's page, and the first of each kind for the list.

use tailscope_record::Code;

use super::bar;
use super::line::{Ink, Line, Room, fit, pad, right};
use super::snapshot::{Kind, Period};

/// What the times and shares behind a function take.
const FIGURES: usize = 23;

/// `store ← handle ← main`.
fn path(code: &Code, room: &Room) -> String {
    let names = code.functions.iter().map(|name| room.spell(name));
    names.collect::<Vec<_>>().join(room.glyphs(" ← ", " < "))
}

/// The function with the most time, with the letter of its cause: the part of the bar that it is in.
pub fn hottest(line: &mut Line, kind: &Kind, room: &Room) {
    let Some((code, function)) = kind.code.first().and_then(|code| {
        let function = code.functions.first()?;
        Some((code, room.spell(function)))
    }) else {
        return;
    };
    line.push(bar::letter(code.cause).to_string(), Ink::Part(code.cause));
    line.push(format!(" {function}"), Ink::Plain);
}

/// A line a function, those with the most time first.
pub fn table(kind: &Kind, room: &Room) -> Vec<Line> {
    let least = room.glyphs("≥ p99", ">= p99");
    let width = room.width.saturating_sub(4 + FIGURES).clamp(16, 72);
    let heading = pad(&fit("FUNCTION, ITS CALLERS, LAST SECONDS", width), width);
    let heading = format!("    {heading}{}{}", right(least, 13), right("share", 10));
    let mut lines = vec![Line::new(heading, Ink::Strong)];
    for code in &kind.code {
        let tail = &kind.of(Period::Recent).tail;
        let share = code.ns * tail.spans / tail.wall_ns.max(1.0) * 100.0;
        let mut line = Line::plain("  ");
        line.push(bar::letter(code.cause).to_string(), Ink::Part(code.cause));
        let path = pad(&fit(&path(code, room), width), width);
        let time = right(&room.time(code.ns), 13);
        let share = right(&format!("{share:.1} %"), 10);
        line.push(format!(" {path}{time}{share}"), Ink::Plain);
        lines.push(line);
    }
    if kind.code.is_empty() {
        lines.push(Line::plain("    none was seen often enough yet"));
    }
    lines
}
