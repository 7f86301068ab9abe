//! The names that SDK processes bring. Those of one user must not take the room of all others.

use std::collections::{HashMap, HashSet};

/// The most names of one user that are recorded as they are.
const MOST_OF_USER: usize = 512;
/// The name of all others, and of those whose text had no room in the region.
const OTHER: &str = "(other)";
const UNNAMED: &str = "(unnamed)";

/// The names by user.
#[derive(Debug, Default)]
pub(crate) struct SdkNames(HashMap<u32, HashSet<String>>);

impl SdkNames {
    /// The name under which a span of this user's is recorded.
    pub(crate) fn allowed(&mut self, user: u32, name: Option<String>) -> String {
        let Some(name) = name else {
            return UNNAMED.into();
        };
        let known = self.0.entry(user).or_default();
        if known.len() < MOST_OF_USER {
            known.insert(name.clone());
            return name;
        }
        if known.contains(&name) {
            name
        } else {
            OTHER.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_users_names_leave_room_for_those_of_others() {
        let mut names = SdkNames::default();
        for number in 0..10 * MOST_OF_USER {
            names.allowed(65534, Some(number.to_string()));
        }
        assert_eq!(names.allowed(65534, Some("one more".into())), OTHER);
        assert_eq!(names.allowed(65534, Some("7".into())), "7");
        assert_eq!(names.allowed(1000, Some("GET /".into())), "GET /");
        assert_eq!(names.allowed(1000, None), UNNAMED);
    }
}
