//! From the view to lines of text: the same on a terminal and in a pipe.

use tailscope_record::Breakdown;
use tailscope_trace::Cause;
use unicode_width::UnicodeWidthStr;

use super::bar;
use super::code;
use super::detail;
use super::line::{Ink, Line, Room, fit, pad, right};
use super::snapshot::{Figures, Kind, Period};
use super::text::{quantile_texts, rate_text};
use super::view::{Column, Page, View};
use crate::units::count;

/// The picture of a view.
pub fn picture(view: &View, room: &Room) -> Vec<Line> {
    let foot = match room.height {
        Some(_) => foot(view, room),
        None => legend(view, room),
    };
    let mut lines = vec![title(view, room)];
    let body = room
        .height
        .map(|height| height.saturating_sub(1 + foot.len()));
    lines.extend(match view.page {
        Page::List => list(view, room, body),
        Page::Detail => detail::page(view, room),
        Page::Help => help(view, body),
    });
    if let Some(body) = body {
        lines.resize(1 + body, Line::default());
    }
    lines.extend(foot);
    lines.into_iter().map(|line| line.cut(room.width)).collect()
}

fn title(view: &View, room: &Room) -> Line {
    let seconds = view.snapshot.seconds[view.period as usize];
    let period = match view.period {
        Period::Recent => format!("last {seconds:.0} s"),
        Period::Total => format!("all {seconds:.0} s"),
    };
    let rate: f64 = view
        .snapshot
        .kinds
        .iter()
        .map(|kind| kind.of(view.period).rate)
        .sum();
    let frozen = if view.frozen { "FROZEN  " } else { "" };
    let right = format!(
        "{frozen}{period}  {} spans/s  {} lost ",
        rate_text(rate),
        count(view.lost)
    );
    let left = format!(" tailscope top  {}", room.spell(&view.subject));
    let space = room.width.saturating_sub(right.width() + 1);
    Line::new(
        format!("{} {right}", pad(&fit(&left, space), space)),
        Ink::Title,
    )
}

/// Which columns there is room for, and how wide the name, the bar and the function are.
struct Layout {
    name: usize,
    p50: bool,
    p999: bool,
    bar: usize,
    /// 0: functions are not shown.
    code: usize,
}

const RATE: usize = 10;
const TIME: usize = 9;
/// What a long name leaves to the bar, with and without a p50.
const LEAST_BAR: usize = 20;
const LEAST_NARROW_BAR: usize = 12;
/// A bar from this length on leaves half of it to the function,
const LONG_BAR: usize = 32;
/// and not more than this.
const MOST_CODE: usize = 40;

impl Layout {
    fn of(view: &View, kinds: &[&Kind], room: &Room) -> Self {
        let longest = kinds
            .iter()
            .map(|kind| kind.name.width())
            .max()
            .unwrap_or(0);
        // A function takes the place of percentiles where there is room for one of them.
        let spare = room.width.saturating_sub(if view.stacks { 30 } else { 0 });
        let (p50, p999) = (spare >= 70, spare >= 52);
        let times = 1 + usize::from(p50) + usize::from(p999);
        let left = room.width.saturating_sub(2 + RATE + times * TIME + 2);
        let least = if view.stacks {
            LONG_BAR
        } else if p50 {
            LEAST_BAR
        } else {
            LEAST_NARROW_BAR
        };
        let name = longest.clamp(4, left.saturating_sub(least).clamp(4, 32));
        let bar = left.saturating_sub(name);
        let code = match view.stacks && bar >= LONG_BAR {
            true => (bar / 2).min(MOST_CODE),
            false => 0,
        };
        Self {
            name,
            p50,
            p999,
            bar: bar - code,
            code,
        }
    }
}

fn list(view: &View, room: &Room, body: Option<usize>) -> Vec<Line> {
    let kinds = view.kinds();
    if kinds.is_empty() {
        let why = match view.snapshot.kinds.len() {
            0 => [
                "  no span has ended yet".into(),
                "  The process is idle, or --span selects the wrong spans.".into(),
            ],
            n => [
                format!(
                    "  none of {n} kinds has '{}' in its name",
                    room.spell(&view.filter)
                ),
                "  esc: show all kinds".into(),
            ],
        };
        return std::iter::once(Line::default())
            .chain(why.map(Line::plain))
            .collect();
    }
    let layout = Layout::of(view, &kinds, room);
    let mut lines = vec![heading(view, &layout, room)];
    let places = body.map_or(kinds.len(), |body| body.saturating_sub(2));
    let chosen = view.chosen();
    let first = (chosen + 1).saturating_sub(places.max(1));
    for (place, kind) in kinds.iter().enumerate().skip(first).take(places) {
        let mark = body.is_some() && place == chosen;
        lines.push(row(view, kind, mark, &layout, room));
    }
    let hidden = kinds.len().saturating_sub(places);
    if hidden > 0 {
        lines.push(Line::plain(format!("  {hidden} more: up and down")));
    }
    lines
}

fn heading(view: &View, layout: &Layout, room: &Room) -> Line {
    let arrow = match view.reversed {
        false => room.glyphs("▼", "v"),
        true => room.glyphs("▲", "^"),
    };
    let head = |name: &str, column| {
        let mark = if view.sort == column { arrow } else { "" };
        format!("{name}{mark}")
    };
    let mut text = format!("  {}", pad(&head("KIND", Column::Name), layout.name));
    text += &right(&head("SPANS/s", Column::Rate), RATE);
    if layout.p50 {
        text += &right(&head("p50", Column::P50), TIME);
    }
    text += &right(&head("p99", Column::P99), TIME);
    if layout.p999 {
        text += &right(&head("p99.9", Column::P999), TIME);
    }
    text += "  ";
    let of_bar = match (view.tail, layout.bar < LEAST_BAR) {
        (true, false) => room.glyphs("time of spans ≥ p99", "time of those >= p99"),
        (true, true) => room.glyphs("time ≥ p99", "time >= p99"),
        (false, _) => "time of all",
    };
    text += of_bar;
    if layout.code > 0 {
        text += &" ".repeat((layout.bar + 2).saturating_sub(of_bar.width()));
        text += room.glyphs("most of it in (≥ p99)", "most of it in (>= p99)");
    }
    Line::new(text, Ink::Strong)
}

fn row(view: &View, kind: &Kind, mark: bool, layout: &Layout, room: &Room) -> Line {
    let figures = kind.of(view.period);
    let ink = if mark { Ink::Strong } else { Ink::Plain };
    let name = pad(&fit(&room.spell(&kind.name), layout.name), layout.name);
    let mut text = format!("{} {name}", if mark { '>' } else { ' ' });
    text += &right(&rate_text(figures.rate), RATE);
    let times = quantile_texts(figures, room);
    for (time, shown) in times.iter().zip([layout.p50, true, layout.p999]) {
        if shown {
            text += &right(time, TIME);
        }
    }
    let mut line = Line::new(text + "  ", ink);
    let drawn = bar::draw(&mut line, breakdown(view, figures), layout.bar);
    if layout.code > 0 {
        line.push(" ".repeat(layout.bar - drawn + 2), Ink::Plain);
        code::hottest(&mut line, kind, room);
    }
    line
}

/// What the bars are of.
pub fn breakdown<'f>(view: &View, figures: &'f Figures) -> &'f Breakdown {
    if view.tail {
        &figures.tail
    } else {
        &figures.all
    }
}

/// What the letters of the bars mean that are in the picture, and the keys.
fn foot(view: &View, room: &Room) -> Vec<Line> {
    let mut lines = Vec::new();
    if view.page == Page::List {
        lines.extend(legend(view, room));
    }
    if !view.notice.is_empty() {
        lines.push(Line::plain(format!(" ! {}", room.spell(&view.notice))));
    }
    if view.typing {
        lines.push(Line::new(
            format!(
                " filter: {}_  (enter: done, esc: show all kinds)",
                room.spell(&view.filter)
            ),
            Ink::Strong,
        ));
        return lines;
    }
    let keys: &[&str] = match view.page {
        Page::List => &[
            "q quit",
            "? help",
            "up/down enter detail",
            "s sort",
            "/ filter",
            "space freeze",
            "w all time",
            "t bars",
            "c colour",
        ],
        Page::Detail => &[
            "q quit",
            "enter back",
            "up/down another kind",
            "space freeze",
            "w all time",
        ],
        Page::Help => &["q quit", "? back", "up/down scroll"],
    };
    let mut text = String::new();
    if view.page == Page::List && !view.filter.is_empty() {
        text = format!(" filter: {}", room.spell(&view.filter));
    }
    for key in keys {
        let more = format!("{text}{}{key}", if text.is_empty() { " " } else { "  " });
        if more.width() <= room.width {
            text = more;
        }
    }
    lines.push(Line::plain(text));
    lines
}

/// The parts of the bars that are shown, by what they sum up to.
fn legend(view: &View, room: &Room) -> Vec<Line> {
    let layout = Layout::of(view, &view.kinds(), room);
    let mut shown: Vec<(Option<Cause>, usize)> = bar::parts().map(|part| (part, 0)).collect();
    for kind in view.kinds() {
        for (part, columns) in bar::columns(breakdown(view, kind.of(view.period)), layout.bar) {
            if let Some(known) = shown.iter_mut().find(|(known, _)| *known == part) {
                known.1 += columns;
            }
        }
    }
    shown.retain(|(_, columns)| *columns > 0);
    shown.sort_by_key(|(_, columns)| std::cmp::Reverse(*columns));
    let mut lines = vec![Line::default()];
    let mut used = 0;
    for (part, _) in shown {
        let width = bar::name(part).width() + 4;
        if used + width > room.width {
            lines.push(Line::default());
            used = 0;
        }
        if let Some(line) = lines.last_mut() {
            line.push(" ", Ink::Plain);
            line.push(bar::letter(part).to_string(), Ink::Part(part));
            line.push(format!(" {} ", bar::name(part)), Ink::Plain);
        }
        used += width;
    }
    lines
}

/// What keys and letters mean: from the line that was chosen, or the last lines that fill the screen.
fn help(view: &View, room: Option<usize>) -> Vec<Line> {
    let keys = [
        "  up down  select a kind     enter  its causes     < > s  sort     r  reverse",
        "  /  filter kinds by name    esc  all kinds        space  freeze   c  colours",
        "  w  last seconds or all     t  bars: tail or all spans            q  quit",
        "  ~  too few spans for the percentile: it is the slowest span",
        "",
    ];
    let parts = bar::parts().map(|part| {
        let mut line = Line::plain("  ");
        line.push(bar::letter(part).to_string(), Ink::Part(part));
        line.push(
            format!(" {:14} {}", bar::name(part), bar::meaning(part)),
            Ink::Plain,
        );
        line
    });
    let mut lines: Vec<_> = keys.map(Line::plain).into_iter().chain(parts).collect();
    let hidden = lines.len().saturating_sub(room.unwrap_or(lines.len()));
    lines.split_off(view.help_from.min(hidden))
}
