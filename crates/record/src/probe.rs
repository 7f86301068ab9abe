//! `usdt:` and `uprobe:` sources: which probes in which program begin and end a span.

use std::fmt;
use std::str::FromStr;

/// Arguments that a USDT note can have, and registers that carry a function's first arguments.
const USDT_ARGUMENTS: u8 = 12;
const CALL_ARGUMENTS: u8 = 6;

/// What the text should have been, for messages.
const USDT_FORM: &str = "usdt:PATH:PROVIDER:BEGIN..END";
const UPROBE_FORM: &str = "uprobe:PATH:SYMBOL or uprobe:PATH:BEGIN..END";

/// One place in a program, and what its arguments give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    /// The name of the probe or the function.
    pub symbol: String,
    /// The argument that is the span's id.
    pub id: Option<u8>,
    /// The argument that is a string and the span's name.
    pub name: Option<u8>,
}

/// Where a span begins and ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ends {
    /// From one note to another of this provider.
    Usdt {
        /// The notes' owner.
        provider: String,
        /// Where it begins.
        begin: Point,
        /// Where it ends.
        end: Point,
    },
    /// From the entry of one function to the entry of another.
    Functions {
        /// Where it begins.
        begin: Point,
        /// Where it ends.
        end: Point,
    },
    /// From the entry of a function to its return.
    Call(Point),
}

/// A source of spans in a program that was not prepared for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeSource {
    text: String,
    label: Option<String>,
    /// A path, or the bare name of a program or library that a recorded process runs.
    pub file: String,
    /// From where to where.
    pub ends: Ends,
}

/// The text names no probes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a span source: {why}; write {form}")]
pub struct ProbeSyntax {
    text: String,
    why: String,
    form: &'static str,
}

impl ProbeSource {
    /// The name of its spans, where no argument gives one: the label that the source was given,
    /// else its probes.
    #[must_use]
    pub fn span_name(&self) -> String {
        self.label.clone().unwrap_or_else(|| match &self.ends {
            Ends::Usdt { begin, end, .. } | Ends::Functions { begin, end } => {
                format!("{}..{}", begin.symbol, end.symbol)
            }
            Ends::Call(point) => point.symbol.clone(),
        })
    }

    /// Whether the text is meant as one, with or without a label.
    pub(crate) fn is_meant(text: &str) -> bool {
        let (_, source) = split_label(text);
        source.starts_with("usdt:") || source.starts_with("uprobe:")
    }
}

/// `LABEL=SOURCE`: a path may have a `=` in it, but not before the first colon.
fn split_label(text: &str) -> (Option<&str>, &str) {
    match text.split_once('=') {
        Some((label, source)) if !label.contains(':') => (Some(label), source),
        _ => (None, text),
    }
}

impl FromStr for ProbeSource {
    type Err = ProbeSyntax;

    fn from_str(text: &str) -> Result<Self, ProbeSyntax> {
        let (label, source) = split_label(text);
        let is_usdt = source.starts_with("usdt:");
        let form = if is_usdt { USDT_FORM } else { UPROBE_FORM };
        let wrong = |why: String| ProbeSyntax {
            text: text.to_owned(),
            why,
            form,
        };
        if label.is_some_and(str::is_empty) {
            return Err(wrong("its name is empty".into()));
        }
        let rest = source.split_once(':').map_or("", |(_, rest)| rest);
        let (before, points) = split_points(rest).ok_or_else(|| wrong("it has no PATH".into()))?;
        let arguments = if is_usdt {
            USDT_ARGUMENTS
        } else {
            CALL_ARGUMENTS
        };
        let point = |text: &str| parse_point(text, arguments).map_err(wrong);
        let pair = points.split_once("..");
        let (file, ends) = if is_usdt {
            let (file, provider) = before
                .rsplit_once(':')
                .ok_or_else(|| wrong("it has no PROVIDER".into()))?;
            let (begin, end) =
                pair.ok_or_else(|| wrong("it has no '..' between two probes".into()))?;
            let ends = Ends::Usdt {
                provider: provider.to_owned(),
                begin: point(begin)?,
                end: point(end)?,
            };
            (file, ends)
        } else if let Some((begin, end)) = pair {
            let (begin, end) = (point(begin)?, point(end)?);
            (before, Ends::Functions { begin, end })
        } else {
            (before, Ends::Call(point(points)?))
        };
        if file.is_empty() {
            return Err(wrong("its PATH is empty".into()));
        }
        Ok(Self {
            text: text.to_owned(),
            label: label.map(str::to_owned),
            file: file.to_owned(),
            ends,
        })
    }
}

/// At the last colon that is not part of a name in C++: `PATH:THD::query`.
fn split_points(text: &str) -> Option<(&str, &str)> {
    let is_double = |at: usize| {
        let bytes = text.as_bytes();
        bytes.get(at + 1) == Some(&b':') || at.checked_sub(1).map(|b| bytes[b]) == Some(b':')
    };
    let (at, _) = text.rmatch_indices(':').find(|(at, _)| !is_double(*at))?;
    Some((&text[..at], &text[at + 1..]))
}

/// `symbol` or `symbol(id=arg0,name=arg1)`.
fn parse_point(text: &str, arguments: u8) -> Result<Point, String> {
    let (symbol, wanted) = match text.split_once('(') {
        None => (text, ""),
        Some((symbol, rest)) => (
            symbol,
            rest.strip_suffix(')')
                .ok_or_else(|| format!("'{text}' has no ')'"))?,
        ),
    };
    if symbol.is_empty() {
        return Err("the name of a probe is empty".into());
    }
    let mut point = Point {
        symbol: symbol.to_owned(),
        id: None,
        name: None,
    };
    for want in wanted.split(',').filter(|want| !want.is_empty()) {
        let number = want
            .split_once("=arg")
            .and_then(|(_, number)| number.parse::<u8>().ok())
            .filter(|number| *number < arguments)
            .ok_or_else(|| {
                format!(
                    "'{want}' is neither id=argN nor name=argN with N from 0 to {}",
                    arguments - 1
                )
            })?;
        match want.split_once('=').map(|(what, _)| what.trim()) {
            Some("id") => point.id = Some(number),
            Some("name") => point.name = Some(number),
            _ => return Err(format!("'{want}' should be id=argN or name=argN")),
        }
    }
    Ok(point)
}

impl fmt::Display for ProbeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> ProbeSource {
        text.parse().expect(text)
    }

    fn point(symbol: &str, id: Option<u8>, name: Option<u8>) -> Point {
        Point {
            symbol: symbol.into(),
            id,
            name,
        }
    }

    #[test]
    fn a_pair_of_notes_has_a_provider() {
        let source = parse("usdt:/usr/bin/postgres:postgresql:query__start(id=arg0)..query__done");
        assert_eq!(source.file, "/usr/bin/postgres");
        assert_eq!(
            source.ends,
            Ends::Usdt {
                provider: "postgresql".into(),
                begin: point("query__start", Some(0), None),
                end: point("query__done", None, None),
            }
        );
        assert_eq!(source.span_name(), "query__start..query__done");
    }

    #[test]
    fn a_function_alone_is_from_entry_to_return() {
        let source = parse("uprobe:../bin/a=b:_Z4workv.isra.0(id=arg1,name=arg5)");
        assert_eq!(source.file, "../bin/a=b");
        assert_eq!(
            source.ends,
            Ends::Call(point("_Z4workv.isra.0", Some(1), Some(5)))
        );
        assert_eq!(source.span_name(), "_Z4workv.isra.0");
    }

    #[test]
    fn a_name_in_cplusplus_keeps_its_colons() {
        let source = parse("uprobe:/usr/sbin/mariadbd:THD::query(id=arg0)");
        assert_eq!(source.file, "/usr/sbin/mariadbd");
        assert_eq!(source.ends, Ends::Call(point("THD::query", Some(0), None)));
        let source = parse("uprobe:server:A::begin..B::C::end");
        assert_eq!(source.file, "server");
        assert_eq!(source.span_name(), "A::begin..B::C::end");
    }

    #[test]
    fn a_label_names_the_spans() {
        let source = parse("query=uprobe:server:begin_query..end_query");
        assert_eq!(source.span_name(), "query");
        assert_eq!(source.file, "server");
    }

    #[test]
    fn what_is_wrong_is_said_with_the_form() {
        for (text, why) in [
            ("usdt:/bin/x", "no PATH"),
            ("usdt:/bin/x:a..b", "no PROVIDER"),
            ("usdt:/bin/x:p:a", "no '..'"),
            ("usdt:/bin/x:p:a..", "is empty"),
            ("uprobe:x:f(id=arg6)", "0 to 5"),
            ("uprobe:x:f(id=arg0", "has no ')'"),
            ("uprobe:x:f(colour=arg0)", "should be id=argN"),
            ("uprobe::f", "PATH is empty"),
            ("=uprobe:x:f", "name is empty"),
        ] {
            let error = text.parse::<ProbeSource>().expect_err(text).to_string();
            assert!(error.contains(why), "{text}: {error}");
            assert!(error.contains("PATH:"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn foreign_text_never_panics(text in "(u(sdt|probe):)?[a-z:=.()0-9,]{0,40}") {
            if let Ok(source) = text.parse::<ProbeSource>() {
                prop_assert_eq!(source.to_string(), text);
            }
        }
    }
}
