//! The terminal that text goes to: how wide it is, and which letters it has.

use std::borrow::Cow;
use std::env;
use std::io::{IsTerminal, stderr, stdout};

use crossterm::terminal::size;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The width of output that no terminal shows: a pipe, a file.
const PIPE_WIDTH: usize = 80;
/// Narrower terminals are treated as this wide: tables have no fewer columns.
const NARROWEST: usize = 48;
/// From this many spaces on, a gap in a line separates columns.
const GAP: &str = "   ";

/// Where text goes.
#[derive(Debug, Clone, Copy)]
pub struct Console {
    pub width: usize,
    /// The locale has more letters than ASCII's.
    pub unicode: bool,
}

impl Console {
    pub fn stdout() -> Self {
        Self::of(stdout().is_terminal())
    }

    pub fn stderr() -> Self {
        Self::of(stderr().is_terminal())
    }

    fn of(is_terminal: bool) -> Self {
        // Only a terminal is asked: for anything else crossterm would run another program.
        let columns = || is_terminal.then(size)?.ok().map(|(width, _)| width);
        let asked = env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
        let width = asked
            .filter(|width| *width > 0)
            .or_else(columns)
            .map_or(PIPE_WIDTH, usize::from);
        Self {
            width: width.max(NARROWEST),
            unicode: has_unicode(|name| env::var(name).ok()),
        }
    }

    /// The text in letters that the locale has, and nothing that a terminal obeys but line ends.
    pub fn spell(&self, text: &str) -> String {
        let text = escaped(text);
        if self.unicode {
            return text.into_owned();
        }
        let mut plain = String::with_capacity(text.len());
        for letter in text.chars() {
            match letter {
                _ if letter.is_ascii() => plain.push(letter),
                _ => plain.push_str(in_ascii(letter)),
            }
        }
        plain
    }

    /// The text in letters that the locale has, and no line longer than the width. The rest of a
    /// longer line goes below its last column, or is indented.
    pub fn lay_out(&self, text: &str) -> String {
        let mut laid_out = String::new();
        for line in self.spell(text).split_inclusive('\n') {
            match line.strip_suffix('\n') {
                Some(line) => laid_out += &(wrapped(line, self.width) + "\n"),
                None => laid_out += &wrapped(line, self.width),
            }
        }
        laid_out
    }
}

/// The text with what a terminal obeys spelled out: `\x1b`, `\u202e`. Names of spans, threads and
/// files come from those who are recorded. Line ends stay: they are the text's own.
pub fn escaped(text: &str) -> Cow<'_, str> {
    let spelled = |letter: char| match letter {
        '\t' => "\\t".into(),
        '\r' => "\\r".into(),
        _ if letter < '\u{100}' => format!("\\x{:02x}", u32::from(letter)),
        _ => format!("\\u{:04x}", u32::from(letter)),
    };
    replaced(text, spelled)
}

/// The text in one line: a name must not begin a line of its own.
pub fn in_one_line(text: &str) -> String {
    escaped(text).replace('\n', "\\n")
}

/// The same in JSON, which has none of these but in strings, and spells them as `\u009b`. Its line
/// ends and those below a space are spelled already.
pub fn escaped_in_json(json: &str) -> Cow<'_, str> {
    replaced(json, |letter| format!("\\u{:04x}", u32::from(letter)))
}

/// The text with all that a terminal obeys, except line ends, spelled in this way.
fn replaced(text: &str, spelled: impl Fn(char) -> String) -> Cow<'_, str> {
    let is_spelled = |letter: char| letter != '\n' && is_obeyed(letter);
    if !text.contains(is_spelled) {
        return text.into();
    }
    let mut found = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_spelled(letter) {
            found += &spelled(letter);
        } else {
            found.push(letter);
        }
    }
    found.into()
}

/// Whether a terminal does something for this letter, or shows others in another order: control
/// characters of ASCII and of Latin 1, Unicode's line ends, and its marks of direction.
fn is_obeyed(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// Whether the locale has more letters than ASCII's, by POSIX's order of variables.
fn has_unicode(variable: impl Fn(&str) -> Option<String>) -> bool {
    ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .filter_map(variable)
        .find(|value| !value.is_empty())
        .is_some_and(|locale| {
            let locale = locale.to_uppercase();
            locale.contains("UTF-8") || locale.contains("UTF8")
        })
}

/// What ASCII has in place of a letter.
fn in_ascii(letter: char) -> &'static str {
    match letter {
        'µ' | 'μ' => "u",
        '–' | '—' | '−' | '‐' | '─' | '━' => "-",
        '…' => "...",
        '·' => ".",
        '“' | '”' | '„' => "\"",
        '‘' | '’' => "'",
        '±' => "+/-",
        '×' => "x",
        '²' => "^2",
        '≥' => ">=",
        '≤' => "<=",
        '→' => "->",
        '←' => "<-",
        '│' | '┃' => "|",
        '┌' | '┐' | '└' | '┘' | '├' | '┤' | '┬' | '┴' | '┼' => "+",
        '\u{a0}' | '\u{202f}' => " ",
        _ => "?",
    }
}

/// A line in lines of at most a width. Words that are longer than that stay whole: they are paths.
fn wrapped(line: &str, width: usize) -> String {
    if line.width() <= width {
        return line.into();
    }
    let hang = hang(line, width);
    let mut found = String::new();
    let mut used = 0;
    let mut rest = line;
    while !rest.is_empty() {
        // A word with the spaces before it.
        let spaces = rest.len() - rest.trim_start_matches(' ').len();
        let end = rest[spaces..]
            .find(' ')
            .map_or(rest.len(), |at| spaces + at);
        let (word, after) = rest.split_at(end);
        if used + word.width() > width && !found.trim_end().is_empty() {
            found += "\n";
            found += &" ".repeat(hang);
            found += word.trim_start_matches(' ');
            used = hang + word.trim_start_matches(' ').width();
        } else {
            found += word;
            used += word.width();
        }
        rest = after;
    }
    found
}

/// Where the rest of a long line begins: below its last column that leaves a third of the width,
/// if it has columns, and else two further than the line itself.
fn hang(line: &str, width: usize) -> usize {
    let text = line.trim_start_matches(' ');
    let own = line.len() - text.len();
    let mut column = None;
    let mut used = own;
    let mut spaces = 0;
    for letter in text.chars() {
        if letter != ' ' && spaces >= GAP.len() && used * 3 <= width * 2 {
            column = Some(used);
        }
        spaces = if letter == ' ' { spaces + 1 } else { 0 };
        used += letter.width().unwrap_or(0);
    }
    column.unwrap_or(own + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Console = Console {
        width: 40,
        unicode: false,
    };

    #[test]
    fn the_locale_decides_in_posix_order() {
        let of = |set: &[(&str, &str)]| {
            has_unicode(|name| {
                let found = set.iter().find(|(one, _)| *one == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        assert!(of(&[("LC_ALL", "C.UTF-8"), ("LANG", "C")]));
        assert!(of(&[("LC_ALL", ""), ("LANG", "de_DE.utf8")]));
        assert!(!of(&[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")]));
        assert!(!of(&[("LC_CTYPE", "POSIX"), ("LANG", "en_US.UTF-8")]));
        assert!(!of(&[]));
    }

    #[test]
    fn letters_become_ascii_only_where_the_locale_has_no_others() {
        let text = "12.3 µs, 1 ± 2, … 3–4 é";
        assert_eq!(PLAIN.spell(text), "12.3 us, 1 +/- 2, ... 3-4 ?");
        let unicode = Console {
            unicode: true,
            ..PLAIN
        };
        assert_eq!(unicode.spell(text), text);
    }

    #[test]
    fn a_terminal_obeys_nothing_that_a_name_says() {
        let name = "a\x1b]0;me\x07\u{9b}2J\x7f\r\tb\u{202e}c\u{2066}d";
        let shown = r"a\x1b]0;me\x07\x9b2J\x7f\r\tb\u202ec\u2066d";
        let unicode = Console {
            unicode: true,
            ..PLAIN
        };
        for console in [PLAIN, unicode] {
            assert_eq!(console.spell(name), shown);
            assert_eq!(console.lay_out(name), shown);
            assert_eq!(console.spell(shown), shown);
        }
        assert_eq!(unicode.spell("größe 名\n"), "größe 名\n");
        assert_eq!(in_one_line("a\nb\x1b"), r"a\nb\x1b");
        assert!(matches!(escaped("plain\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_says_the_same_with_nothing_to_obey() {
        let names = ["\x1b[2J", "\u{9b}2J\x7f", "\u{202e}\u{2029}", "größe"];
        for json in [
            serde_json::to_string(&names),
            serde_json::to_string_pretty(&names),
        ] {
            let json = json.expect("strings");
            let shown = escaped_in_json(&json);
            assert!(!shown.replace('\n', "").contains(is_obeyed), "{shown}");
            let back: Vec<String> = serde_json::from_str(&shown).expect("JSON");
            assert_eq!(back, names);
        }
    }

    #[test]
    fn a_long_line_goes_on_below_its_last_column() {
        let text = "period, cycles      p1 100  p50 200  p90 300  p99 400\nshort\n";
        assert_eq!(
            PLAIN.lay_out(text),
            "period, cycles      p1 100  p50 200  p90\n                    300  p99 400\nshort\n"
        );
    }

    #[test]
    fn a_long_line_without_columns_is_indented() {
        let text = "  because the kernel has no such hook and never had";
        assert_eq!(
            PLAIN.lay_out(text),
            "  because the kernel has no such hook\n    and never had"
        );
    }

    #[test]
    fn a_word_that_is_too_long_stays_whole() {
        let path = "/".repeat(50);
        assert_eq!(PLAIN.lay_out(&path), path);
        assert_eq!(
            PLAIN.lay_out(&format!("by {path} x")),
            format!("by\n  {path}\n  x")
        );
    }

    #[test]
    fn the_layout_is_made_of_letters_that_are_shown() {
        let text = "…".repeat(20);
        assert_eq!(PLAIN.lay_out(&text).len(), 60);
        assert_eq!(PLAIN.lay_out("a … b"), "a ... b");
    }
}
