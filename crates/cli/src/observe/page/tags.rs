//! Rates by the tags' values: bars of their shares and rates with their deviations beside each
//! other, and all of them as a table.

use tailscope_observe::report::{ByTag, Rate, Report};
use tailscope_timeline::escaped;

use super::axis::{Axis, short};
use super::svg::{
    Anchor, NARROW, WIDE, Words, bar, dot, drawn, fitted, label, line, picture, width_of,
};
use super::{class, figures};
use crate::observe::text::{name_of, percent, rate};
use crate::units::count;

/// Values that are drawn; the table has more.
const SHOWN: usize = 15;
const STEP: f64 = 26.0;
const HEAD: f64 = 40.0;

/// A value of the tags, or a function.
struct Row {
    name: String,
    share: f64,
    samples: u64,
    /// By counter: the mean, and the standard deviation where it is known; `None`: no rate is.
    rates: Vec<Option<(f64, Option<f64>)>>,
}

/// The cards; nothing where there is no tag.
pub fn of(report: &Report) -> String {
    let Some(tags) = &report.by_tag else {
        return String::new();
    };
    let signals = tags.signals.join(", ");
    let said = format!(
        "Which share of the samples saw each value, and how fast the counters grew meanwhile (in \
         pairs of which both samples saw it; {} of the time it changed between two samples).",
        percent(tags.changed_share)
    );
    let mut html = String::new();
    if tags.functions.is_some() {
        html += &card(
            &format!("By function of {signals}"),
            &said,
            &functions(tags),
            &report.rates,
        );
    }
    html + &card(
        &format!("By {signals}"),
        &said,
        &values(tags),
        &report.rates,
    )
}

fn functions(tags: &ByTag) -> Vec<Row> {
    let functions = tags.functions.iter().flatten();
    let row = |function: &tailscope_observe::report::Function| Row {
        name: function.name.clone().unwrap_or_else(|| "(unknown)".into()),
        share: function.share,
        samples: function.samples,
        rates: function
            .per_second
            .iter()
            .flatten()
            .map(|rate| rate.map(|rate| (rate, None)))
            .collect(),
    };
    functions.map(row).collect()
}

fn values(tags: &ByTag) -> Vec<Row> {
    let row = |value: &tailscope_observe::report::Value| {
        let rates = value.per_second.iter().flatten().zip(&value.deviation);
        Row {
            name: name_of(value),
            share: value.share,
            samples: value.samples,
            rates: rates
                .map(|(mean, deviation)| mean.map(|mean| (mean, Some(*deviation))))
                .collect(),
        }
    };
    tags.values.iter().map(row).collect()
}

fn card(title: &str, said: &str, rows: &[Row], counters: &[Rate]) -> String {
    let words = Words {
        name: format!("{title}: shares and rates"),
        about: match rows.first() {
            Some(first) => format!(
                "Most often {}, {} of the samples.",
                first.name,
                percent(first.share)
            ),
            None => "No value was seen.".into(),
        },
    };
    let shown = &rows[..rows.len().min(SHOWN)];
    let mut html = format!(
        "<section><h2>{}</h2><p class=\"say\">{said}</p>\n",
        escaped(title)
    );
    html += &drawn(WIDE, |width| bars(shown, counters, &words, width));
    if rows.len() > SHOWN {
        let rest: f64 = rows[SHOWN..].iter().map(|row| row.share).sum();
        html += &format!(
            "<p class=\"rest\">Not drawn: {} more, {} of the samples together.</p>",
            rows.len() - SHOWN,
            percent(rest)
        );
    }
    html + &table(rows, counters) + "</section>\n"
}

fn table(rows: &[Row], counters: &[Rate]) -> String {
    let mut head = vec![
        "value".to_owned(),
        "share".into(),
        "pairs of samples".into(),
    ];
    head.extend(counters.iter().map(|counter| counter.signal.clone()));
    let rows = rows.iter().map(|row| {
        let rates = row.rates.iter().map(|known| match known {
            Some((mean, Some(deviation))) => format!("{} ± {}", rate(*mean), rate(*deviation)),
            Some((mean, None)) => rate(*mean),
            None => "–".into(),
        });
        let mut cells = vec![row.name.clone(), percent(row.share), count(row.samples)];
        cells.extend(rates);
        cells.resize(cells.len().max(3 + counters.len()), "–".into());
        cells
    });
    figures::table(
        "The figures: rates by value, with their standard deviations",
        &head,
        rows,
    )
}

/// The columns of a picture: names, shares, and one for each counter's rate.
struct Columns {
    names: f64,
    shares: (f64, f64),
    rates: Vec<(f64, f64)>,
}

impl Columns {
    fn of(width: f64, counters: usize, longest: f64) -> Self {
        const GAP: f64 = 34.0;
        if width <= NARROW {
            // On a phone names have lines of their own, and the first counter is shown.
            return Self {
                names: width,
                shares: (0.0, width * 0.37),
                rates: vec![(width * 0.58, width - 8.0)],
            };
        }
        let names = longest.min(width * 0.3);
        let left = names + 14.0;
        let each = (width - left) / (counters as f64 + 1.0);
        let column = |number: usize| {
            let from = left + each * number as f64;
            (from, from + each - GAP)
        };
        Self {
            names,
            shares: (left, left + each - GAP - 46.0),
            rates: (1..=counters).map(column).collect(),
        }
    }
}

fn bars(rows: &[Row], counters: &[Rate], words: &Words, width: f64) -> String {
    let longest = rows
        .iter()
        .map(|row| width_of(&row.name))
        .fold(60.0, f64::max);
    let columns = Columns::of(width, counters.len(), longest);
    let narrow = width <= NARROW;
    let step = if narrow { 2.0 * STEP - 8.0 } else { STEP };
    let height = HEAD + step * rows.len() as f64 + 4.0;
    let most = rows.iter().map(|row| row.share).fold(1e-9, f64::max);
    let mut parts = label(
        (columns.shares.0, 12.0),
        "% of the samples",
        "axis",
        Anchor::Start,
    );
    for (number, place) in columns.rates.iter().enumerate() {
        parts += &rates(rows, number, counters, *place, (step, narrow));
    }
    for (row, top) in rows
        .iter()
        .zip((0..).map(|row| HEAD + step * f64::from(row)))
    {
        let name = fitted(&row.name, columns.names);
        let down = if narrow { 20.0 } else { 0.0 };
        if narrow {
            parts += &label((0.0, top + 13.0), &name, "row", Anchor::Start);
        } else {
            parts += &label((columns.names, top + 14.0), &name, "row", Anchor::End);
        }
        let (from, to) = columns.shares;
        let long = (to - from) * row.share / most;
        let tip = format!("{}: {} of the samples", row.name, percent(row.share));
        parts += &bar(
            (from, top + down + 2.0),
            (long.max(1.0), 15.0),
            "f-ink",
            &tip,
        );
        let text = percent(row.share);
        parts += &label(
            (from + long + 6.0, top + down + 14.0),
            &text,
            "value",
            Anchor::Start,
        );
    }
    picture(width, height, words, &parts)
}

/// One counter's rates: a dot for the mean, a line as far as the standard deviation goes.
fn rates(
    rows: &[Row],
    number: usize,
    counters: &[Rate],
    (from, to): (f64, f64),
    (step, narrow): (f64, bool),
) -> String {
    let of = |row: &Row| row.rates.get(number).copied().flatten();
    let ends = rows
        .iter()
        .filter_map(of)
        .map(|(mean, deviation)| mean + deviation.unwrap_or(0.0));
    let axis = Axis::linear(0.0, ends.fold(0.0, f64::max) * 1.02);
    let x = |value: f64| from + axis.place(value) * (to - from);
    let bottom = HEAD + step * rows.len() as f64;
    let name = counters.get(number).map_or("", |counter| &counter.signal);
    let room = to - from + if narrow { 8.0 } else { 30.0 };
    let mut parts = label(
        (from, 12.0),
        &fitted(&format!("{name}, /s"), room),
        "axis",
        Anchor::Start,
    );
    for (value, text) in axis.ticks(((to - from) / 60.0) as usize) {
        parts += &line((x(value), HEAD - 4.0), (x(value), bottom), "grid");
        parts += &label((x(value), HEAD - 10.0), &text, "tick", Anchor::Middle);
    }
    let class = class(number);
    for (row, top) in rows
        .iter()
        .zip((0..).map(|row| HEAD + step * f64::from(row)))
    {
        let y = top + 9.5 + if narrow { 20.0 } else { 0.0 };
        let Some((mean, deviation)) = of(row) else {
            parts += &label((from, y + 4.0), "unknown", "tick", Anchor::Start);
            continue;
        };
        if let Some(deviation) = deviation {
            let ends = (
                (x((mean - deviation).max(0.0)), y),
                (x(mean + deviation), y),
            );
            parts += &line(ends.0, ends.1, &format!("spread s-{class}"));
        }
        parts += &dot((x(mean), y), &format!("f-{class}"));
        parts += &tip(
            &format!("{}: {}/s", row.name, short(mean)),
            (from, y),
            to - from,
        );
    }
    parts
}

/// A place that says something when it is pointed at.
fn tip(text: &str, (x, y): (f64, f64), width: f64) -> String {
    bar((x, y - 10.0), (width, 20.0), "hover", text)
}

#[cfg(test)]
mod tests {
    use tailscope_observe::report::Value;

    use super::*;

    fn tags() -> ByTag {
        ByTag {
            signals: vec!["running:0".into()],
            distinct: 1,
            values: vec![Value {
                tags: Some(vec![7]),
                names: Some(vec![Some("<script>".into())]),
                share: 0.25,
                samples: 1234,
                per_second: Some(vec![Some(2e6)]),
                deviation: vec![1e3],
            }],
            functions: None,
            changed: 0,
            changed_share: 0.0,
            changed_grown: vec![Some(0.0)],
        }
    }

    #[test]
    fn foreign_names_of_values_never_become_markup() {
        let html = card("<b>", "", &values(&tags()), &[]);
        assert!(
            !html.contains("<script>") && !html.contains("<b>"),
            "{html}"
        );
        assert!(html.contains("&lt;script&gt;"), "{html}");
        assert!(
            html.contains("25.00 %") && html.contains("2.000 M/s ± 1.000 k/s"),
            "{html}"
        );
    }

    #[test]
    fn what_is_not_drawn_is_counted() {
        let mut many = tags();
        many.values = vec![many.values[0].clone(); SHOWN + 3];
        let html = card("by tag", "", &values(&many), &[]);
        assert!(html.contains("Not drawn: 3 more, 75.00 %"), "{html}");
        // Each on a desk's and on a phone's picture.
        assert_eq!(html.matches("class=\"f-ink\"").count(), 2 * SHOWN);
    }
}
