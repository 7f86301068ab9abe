//! The figures behind a picture, as a table that opens on demand: for readers who use a keyboard, a
//! screen reader or paper, and for those who want the number.

use std::fmt::Write;

use tailscope_timeline::escaped;

/// A table that opens on demand, and scrolls by itself where it is wider than the page.
pub fn table(title: &str, head: &[String], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let title = escaped(title);
    let mut html = format!(
        "<details><summary>{title}</summary>\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\"><table>\n<tr>"
    );
    for name in head {
        let _ = write!(html, "<th scope=\"col\">{}</th>", escaped(name));
    }
    html += "</tr>\n";
    for row in rows {
        html += "<tr>";
        for (place, cell) in row.iter().enumerate() {
            let class = if place == 0 { " class=\"long\"" } else { "" };
            let _ = write!(html, "<td{class}>{}</td>", escaped(cell));
        }
        html += "</tr>\n";
    }
    html + "</table></div></details>\n"
}

/// A line of a list of facts.
pub fn fact(title: &str, text: &str) -> String {
    format!("<dt>{}</dt><dd>{}</dd>", escaped(title), escaped(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_names_never_become_markup() {
        let html = table("<a>", &["<b>".into()], [vec!["<i>".into()]]) + &fact("<u>", "<s>");
        for tag in ["<a>", "<b>", "<i>", "<u>", "<s>"] {
            assert!(!html.contains(tag), "{html}");
        }
    }
}
