//! What goes wrong with single files. Each message is given once, and their number is limited: a watched
//! process must not be able to fill a log.

use std::collections::HashSet;
use std::io;
use std::path::Path;

/// The most messages in all.
const MOST: usize = 100;

/// Messages that nobody has taken yet, and those that were given.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    waiting: Vec<String>,
    known: HashSet<String>,
}

impl Problems {
    pub(crate) fn add(&mut self, problem: String) {
        if self.known.len() < MOST && self.known.insert(problem.clone()) {
            self.waiting.push(problem);
        }
    }

    /// A file that can't be read.
    pub(crate) fn add_unread(&mut self, file: &Path, why: &io::Error) {
        let file = file.display();
        self.add(format!(
            "can't search {file} for the SDK: {why}; SDK spans of its processes may be missing"
        ));
    }

    /// A file whose SDK serves another recorder.
    pub(crate) fn add_for_another(&mut self, file: &Path) {
        self.add(format!(
            "the SDK in {} is older and serves one recorder at a time, which is another one: \
             build the program with a newer SDK, or stop the other recorder; its SDK spans are missing",
            file.display()
        ));
    }

    pub(crate) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_is_given_once_and_not_too_many() {
        let mut problems = Problems::default();
        (0..10).for_each(|_| problems.add("the same".into()));
        assert_eq!(problems.take(), ["the same"]);
        problems.add("the same".into());
        (0..10 * MOST).for_each(|number| problems.add(number.to_string()));
        assert_eq!(problems.take().len(), MOST - 1);
    }
}
