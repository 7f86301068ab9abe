//! Names that a person may have meant.

/// How many are named in a message.
const SHOWN: usize = 3;

/// The names nearest to `wanted`: those that hold it, shortest first, then those that few edits
/// (Levenshtein) make of it. At most three.
pub fn nearest<'n>(wanted: &str, names: impl IntoIterator<Item = &'n str>) -> Vec<&'n str> {
    let lower = wanted.to_lowercase();
    // A third of the letters may be wrong: more would suggest anything for short names.
    let patience = 1 + wanted.len() / 3;
    let mut found: Vec<(usize, &str)> = names
        .into_iter()
        .filter_map(|name| {
            if name.to_lowercase().contains(&lower) {
                return Some((0, name));
            }
            if name.len().abs_diff(wanted.len()) > patience {
                return None;
            }
            let edits = strsim::levenshtein(wanted, name);
            (edits <= patience).then_some((edits, name))
        })
        .collect();
    found.sort_unstable_by_key(|(edits, name)| (*edits, name.len(), *name));
    found.dedup();
    found
        .into_iter()
        .map(|(_, name)| name)
        .take(SHOWN)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_the_name_comes_before_what_is_like_it() {
        let names = [
            "dispatch_commands_of",
            "_Z16dispatch_commandv",
            "dispatch_comand",
            "main",
        ];
        assert_eq!(
            nearest("dispatch_command", names),
            [
                "dispatch_commands_of",
                "_Z16dispatch_commandv",
                "dispatch_comand"
            ]
        );
    }

    #[test]
    fn nothing_like_it_is_nothing() {
        assert!(nearest("query__start", ["main", "exit"]).is_empty());
    }
}
