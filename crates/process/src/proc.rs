//! Reading `/proc`. The kernel makes a file's text anew for each reader, and says that it is empty, so
//! the standard library asks for a few bytes at first, and then for twice as many each time.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Most texts are shorter, and come with one call.
const ROOM: usize = 8 << 10;
/// The longest text that is read. Most processes may have 65,530 mappings, with short paths.
const MOST: u64 = 64 << 20;

/// The text of a file in `/proc`.
///
/// # Errors
/// The process is gone, the kernel refuses, or the text is too long or not UTF-8.
pub(crate) fn read(path: impl AsRef<Path>) -> io::Result<String> {
    let mut text = String::with_capacity(ROOM);
    File::open(path)?.take(MOST).read_to_string(&mut text)?;
    if text.len() as u64 == MOST {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_whole() {
        let plain = |path| std::fs::read_to_string(path).expect("there");
        let status = read("/proc/self/status").expect("there");
        assert!(status.contains("\nUid:"));
        assert_eq!(
            read("/proc/version").expect("there"),
            plain("/proc/version")
        );
        assert!(read("/proc/0/status").is_err());
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let longer = "a line\n".repeat(ROOM);
        std::fs::write(file.path(), &longer).expect("written");
        assert_eq!(read(file.path()).expect("there"), longer);
    }
}
