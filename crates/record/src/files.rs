//! Which files have the SDK in them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The names in the note of the SDK's probe (`TS__PROBE` in tailscope.h), and what stands before
/// them in a note: its owner, then three addresses.
const NAMES: &[u8] = b"tailscope\0thread\0";
const OWNER: &[u8] = b"stapsdt\0";
const BEFORE: usize = OWNER.len() + 3 * 8;
const STEP: usize = 1 << 20;

/// Whether the file has the SDK's probe. Reads it once, in bounded memory.
pub(crate) fn has_sdk(path: &Path) -> io::Result<bool> {
    let finder = memchr::memmem::Finder::new(NAMES);
    let mut file = File::open(path)?;
    let mut bytes = Vec::with_capacity(STEP + BEFORE + NAMES.len());
    loop {
        let kept = bytes.len();
        (&mut file).take(STEP as u64).read_to_end(&mut bytes)?;
        if bytes.len() == kept {
            return Ok(false);
        }
        let is_note = |at: usize| at >= BEFORE && bytes[at - BEFORE..].starts_with(OWNER);
        if finder.find_iter(&bytes).any(is_note) {
            return Ok(true);
        }
        bytes.drain(..bytes.len().saturating_sub(BEFORE + NAMES.len() - 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note() -> Vec<u8> {
        [OWNER, &[7; 24], NAMES].concat()
    }

    fn is_found(bytes: &[u8]) -> bool {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), bytes).expect("written");
        has_sdk(file.path()).expect("read")
    }

    #[test]
    fn the_note_is_found_wherever_a_read_cuts_it() {
        for at in [
            0,
            5,
            STEP - note().len(),
            STEP - 20,
            STEP - 3,
            STEP,
            2 * STEP - 1,
        ] {
            let bytes = [vec![b't'; at], note(), vec![b't'; 100]].concat();
            assert!(is_found(&bytes), "at {at}");
        }
    }

    #[test]
    fn the_names_alone_are_no_note() {
        assert!(!is_found(NAMES));
        assert!(!is_found(&[&[0; 64], NAMES].concat()));
    }

    #[test]
    fn a_file_without_it_has_none() {
        assert!(!has_sdk(Path::new("/bin/true")).expect("read"));
    }
}
