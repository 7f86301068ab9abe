//! Rates by tag as tables of HTML.

use std::fmt::Write;

use tailscope_observe::report::{ByTag, Rate};
use tailscope_timeline::escaped;

use super::text::{name_of, percent, rate};
use crate::units::count;

struct Row {
    name: String,
    share: f64,
    samples: u64,
    rates: Vec<String>,
}

/// By function, where the tag is a place in code, and by value.
pub fn by_tag(tags: &ByTag, counters: &[Rate]) -> String {
    let of = |per_second: &Option<Vec<f64>>| -> Vec<f64> { per_second.clone().unwrap_or_default() };
    let functions = tags.functions.iter().flatten().map(|function| Row {
        name: function.name.clone().unwrap_or_else(|| "(unknown)".into()),
        share: function.share,
        samples: function.samples,
        rates: of(&function.per_second).into_iter().map(rate).collect(),
    });
    let values = tags.values.iter().map(|value| Row {
        name: name_of(value),
        share: value.share,
        samples: value.samples,
        rates: of(&value.per_second)
            .into_iter()
            .zip(&value.deviation)
            .map(|(mean, deviation)| format!("{} ± {}", rate(mean), rate(*deviation)))
            .collect(),
    });
    let signals = tags.signals.join(", ");
    let mut html = String::new();
    if tags.functions.is_some() {
        html += &table(&format!("By function of {signals}"), functions, counters);
    }
    html += &table(&format!("By {signals}"), values, counters);
    html
}

fn table(title: &str, rows: impl Iterator<Item = Row>, counters: &[Rate]) -> String {
    let mut html = format!(
        "<h2>{}</h2>\n<table>\n<tr><th></th><th>share</th>",
        escaped(title)
    );
    html += "<th>pairs of samples</th>";
    for counter in counters {
        let _ = write!(html, "<th>{}</th>", escaped(&counter.signal));
    }
    html += "</tr>\n";
    for row in rows {
        let to = format!("{:.1}%", row.share * 100.0);
        let _ = write!(
            html,
            "<tr><td>{}</td><td style=\"background:linear-gradient(to right,#cfe3ee {to},#fff0 {to})\">\
             {}</td><td>{}</td>",
            escaped(&row.name),
            percent(row.share),
            count(row.samples),
        );
        for rate in &row.rates {
            let _ = write!(html, "<td>{}</td>", escaped(rate));
        }
        html += "</tr>\n";
    }
    html + "</table>\n"
}

#[cfg(test)]
mod tests {
    use tailscope_observe::report::Value;

    use super::*;

    #[test]
    fn foreign_names_of_values_never_become_markup() {
        let tags = ByTag {
            signals: vec!["running:0".into()],
            distinct: 1,
            values: vec![Value {
                tags: Some(vec![7]),
                names: Some(vec![Some("<script>".into())]),
                share: 0.25,
                samples: 1234,
                per_second: Some(vec![2e6]),
                deviation: vec![1e3],
            }],
            functions: None,
            changed: 0,
            changed_share: 0.0,
        };
        let html = by_tag(&tags, &[]);
        assert!(
            !html.contains("<script>") && html.contains("&lt;script&gt;"),
            "{html}"
        );
        assert!(
            html.contains("25.0%") && html.contains("2.000 M/s ± 1.000 k/s"),
            "{html}"
        );
    }
}
