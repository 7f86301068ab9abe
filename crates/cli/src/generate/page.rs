//! Man pages: one for each command.

use std::io;

use clap::Command;
use clap::builder::Resettable;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

/// What the foot of each page names.
const SOURCE: &str = concat!("tailscope ", env!("CARGO_PKG_VERSION"));

/// The pages of a command and of all below it: file name and text.
pub fn pages(command: &Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    add(command, None, &mut found)?;
    Ok(found)
}

fn add(
    command: &Command,
    parent: Option<&str>,
    found: &mut Vec<(String, Vec<u8>)>,
) -> io::Result<()> {
    // The renderer would join the lines of examples and tables, so that text has its own sections.
    let after = command.get_after_help().map(ToString::to_string);
    let man = Man::new(command.clone().after_help(Resettable::Reset))
        .source(SOURCE)
        .manual("Tailscope");
    let mut page = Vec::new();
    man.render(&mut page)?;
    let mut roff = sections(&after.unwrap_or_default());
    if let Some(parent) = parent {
        roff.control("SH", ["SEE ALSO"]);
        roff.text([roman(format!("{parent}(1)"))]);
    }
    roff.to_writer(&mut page)?;
    found.push((man.get_filename(), page));
    let name = command.get_display_name().unwrap_or(command.get_name());
    for below in command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
    {
        add(below, Some(name), found)?;
    }
    Ok(())
}

/// The text after the options, as sections. A line that is not indented and ends with a colon is a
/// heading if an indented line follows. Indented lines keep their layout; other lines are prose.
fn sections(text: &str) -> Roff {
    let mut roff = Roff::new();
    let mut section = Section::None;
    let (mut is_literal, mut after_gap) = (false, true);
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let is_indented = line.starts_with(' ');
        if line.is_empty() {
            after_gap = true;
            continue;
        }
        if is_literal && !is_indented {
            roff.control("fi", []);
            is_literal = false;
        }
        let next_is_indented = lines.peek().is_some_and(|next| next.starts_with(' '));
        if let Some(heading) = line.strip_suffix(':')
            && !is_indented
            && next_is_indented
        {
            let heading = heading.split(" (").next().unwrap_or(heading);
            roff.control("SH", [heading.to_uppercase().as_str()]);
            section = Section::Headed;
            after_gap = false;
            continue;
        }
        if section == Section::None || (section == Section::Headed && after_gap && !is_indented) {
            roff.control("SH", ["NOTES"]);
            section = Section::Notes;
        } else if after_gap {
            roff.control("PP", []);
        }
        if is_indented && !is_literal {
            roff.control("nf", []);
            is_literal = true;
        }
        let shown = match section {
            Section::Headed => line.strip_prefix("  ").unwrap_or(line),
            _ => line,
        };
        roff.text([roman(shown)]);
        after_gap = false;
    }
    if is_literal {
        roff.control("fi", []);
    }
    roff
}

/// What the present section is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    /// There is none yet.
    None,
    /// One with a heading of the text's own.
    Headed,
    /// Prose without a heading.
    Notes,
}

#[cfg(test)]
mod tests {
    use super::sections;

    #[test]
    fn examples_keep_their_lines_and_prose_is_filled() {
        let text = "Examples:\n  tailscope top      live\n  tailscope top -p 4711\nSee (--span) too.\n\n\
                    One thought,\nin two lines:\n\nAnother.\n";
        let roff = sections(text).to_roff();
        let expected = "\
.SH EXAMPLES
.nf
tailscope top      live
tailscope top \\-p 4711
.fi
See (\\-\\-span) too.
.SH NOTES
One thought,
in two lines:
.PP
Another.
";
        assert_eq!(roff, expected);
    }

    #[test]
    fn no_text_makes_no_section() {
        assert_eq!(sections("").to_roff(), "");
    }
}
