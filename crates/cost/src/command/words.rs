//! A command line in words, as a shell splits it. Nothing is expanded.

use super::CommandError;

/// Splits at blanks outside of quotes.
///
/// # Errors
/// If a quote is not closed.
pub fn split(line: &str) -> Result<Vec<String>, CommandError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            '\\' => word.get_or_insert_default().extend(letters.next()),
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        Some(end) if end == letter => break,
                        Some('\\') if letter == '"' => match letters.next() {
                            Some(next @ ('"' | '\\' | '$')) => word.push(next),
                            next => word.extend(['\\'].into_iter().chain(next)),
                        },
                        Some(inside) => word.push(inside),
                        None => return Err(CommandError::Quote(line.to_owned())),
                    }
                }
            }
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    Ok(words)
}

/// The options of a tool: what follows each flag that takes a value, and the words that are none.
///
/// `-F99`, `-F 99`, `--freq=99` and `--freq 99` are the same. `takes`: flags with a value.
pub(super) struct Given {
    /// Flags in their order, with their values.
    pub flags: Vec<(String, Option<String>)>,
    /// Words that are no options, up to a `--`.
    pub rest: Vec<String>,
}

impl Given {
    pub(super) fn read(words: &[String], takes: &[&str]) -> Self {
        let mut given = Self {
            flags: Vec::new(),
            rest: Vec::new(),
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "--" {
                given.rest.extend(words.by_ref().cloned());
            } else if let Some((name, value)) =
                word.strip_prefix("--").and_then(|w| w.split_once('='))
            {
                given
                    .flags
                    .push((format!("--{name}"), Some(value.to_owned())));
            } else if takes.contains(&word.as_str()) {
                given.flags.push((word.clone(), words.next().cloned()));
            } else if word.starts_with("--") {
                given.flags.push((word.clone(), None));
            } else if word.starts_with('-') && word.len() > 1 {
                given.short(word, takes, words.by_ref());
            } else {
                given.rest.push(word.clone());
                // A command and its own options.
                given.rest.extend(words.by_ref().cloned());
            }
        }
        given
    }

    /// `-F99`, or several flags in one word, of which the last may take the next word: `-cfp 7`.
    fn short<'w>(
        &mut self,
        word: &str,
        takes: &[&str],
        mut words: impl Iterator<Item = &'w String>,
    ) {
        for (at, letter) in word[1..].char_indices() {
            let flag = format!("-{letter}");
            if takes.contains(&flag.as_str()) {
                let value = &word[1 + at + letter.len_utf8()..];
                let value = match value {
                    "" => words.next().cloned(),
                    value => Some(value.to_owned()),
                };
                self.flags.push((flag, value));
                return;
            }
            self.flags.push((flag, None));
        }
    }

    /// The value of the last of these flags.
    pub(super) fn value(&self, names: &[&str]) -> Option<&str> {
        let found = self.flags.iter().rev();
        let mut found = found.filter(|(name, _)| names.contains(&name.as_str()));
        found.next().and_then(|(_, value)| value.as_deref())
    }

    /// The values of all of these flags.
    pub(super) fn values(&self, names: &[&str]) -> Vec<&str> {
        let found = self
            .flags
            .iter()
            .filter(|(name, _)| names.contains(&name.as_str()));
        found.filter_map(|(_, value)| value.as_deref()).collect()
    }

    /// Whether one of these flags is there.
    pub(super) fn has(&self, names: &[&str]) -> bool {
        self.flags
            .iter()
            .any(|(name, _)| names.contains(&name.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_words_together() {
        let line = r#"bpftrace -e 'uprobe:/x:f { @[tid] = count(); }' "a \"b\"" c\ d"#;
        let words = split(line).expect("the quotes are closed");
        assert_eq!(words[2], "uprobe:/x:f { @[tid] = count(); }");
        assert_eq!(words[3..], ["a \"b\"", "c d"]);
        assert!(split("'x").is_err());
    }

    #[test]
    fn options_are_read_in_every_spelling() {
        for line in [
            "-gF 99",
            "-F99 -g",
            "-F 99 -g",
            "--freq=99 -g",
            "--freq 99 -g",
            "-gF99",
        ] {
            let given = Given::read(&split(line).expect("no quotes"), &["-F", "--freq"]);
            assert_eq!(given.value(&["-F", "--freq"]), Some("99"), "{line}");
            assert!(given.has(&["-g"]), "{line}");
        }
    }
}
