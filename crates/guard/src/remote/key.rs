//! The key that a publisher and its guards share.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ring::digest::SHA256_OUTPUT_LEN;
use ring::hmac::{self, HMAC_SHA256};
use ring::rand::{SecureRandom, SystemRandom};

/// Shorter ones could be guessed.
const SHORTEST: usize = 16;
/// Nobody writes a longer one.
const LONGEST: u64 = 4096;
/// Bytes of the code at the end of each datagram.
const CODE: usize = SHA256_OUTPUT_LEN;

/// Random bytes that are used once.
pub(super) type Nonce = [u8; 16];

/// Why a key can't be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file can't be read.
    #[error("can't read the key {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Everybody knows it.
    #[error(
        "all users can read or change the key {}; run `chmod o= {}`",
        path.display(),
        path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// It could be guessed.
    #[error(
        "the key {} has fewer than {SHORTEST} bytes; make one with `head -c 32 /dev/urandom | base64`",
        .0.display()
    )]
    Short(PathBuf),
}

/// A key for the authentication of datagrams.
#[derive(Clone)]
pub struct Key(hmac::Key);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// The key in a file: all its bytes, without spaces at both ends.
    ///
    /// # Errors
    /// If it can't be read, is short, or is open to all users.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let failed = |source| KeyError::Read {
            path: path.into(),
            source,
        };
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.mode() & 0o007 != 0 {
            return Err(KeyError::Open { path: path.into() });
        }
        let mut bytes = Vec::new();
        let read = file.take(LONGEST).read_to_end(&mut bytes);
        read.map_err(failed)?;
        let bytes = bytes.trim_ascii();
        if bytes.len() < SHORTEST {
            return Err(KeyError::Short(path.into()));
        }
        Ok(Self::of(bytes))
    }

    /// A key of these bytes.
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self(hmac::Key::new(HMAC_SHA256, bytes))
    }

    /// What only who has this key can make of these bytes.
    pub(super) fn code(&self, bytes: &[u8]) -> Nonce {
        let tag = hmac::sign(&self.0, bytes);
        let mut code = Nonce::default();
        code.copy_from_slice(&tag.as_ref()[..size_of::<Nonce>()]);
        code
    }

    /// Appends the code of what is there.
    pub(super) fn seal(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        let code = hmac::sign(&self.0, &bytes);
        bytes.extend(code.as_ref());
        bytes
    }

    /// What stands before the code; `None`: it was not made with this key.
    pub(super) fn open<'b>(&self, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let (bytes, code) = bytes.split_last_chunk::<CODE>()?;
        hmac::verify(&self.0, bytes, code).ok()?;
        Some(bytes)
    }
}

/// Random bytes of the system.
pub(super) fn nonce() -> io::Result<Nonce> {
    let mut bytes = Nonce::default();
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| io::Error::other("the system has no random numbers"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(text: &str, mode: u32) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(text.as_bytes()).expect("written");
        let allowed = std::fs::Permissions::from_mode(mode);
        file.as_file().set_permissions(allowed).expect("changed");
        file
    }

    #[test]
    fn a_key_is_long_and_not_open_to_all() {
        let good = file("0123456789abcdef\n", 0o640);
        assert!(Key::read(good.path()).is_ok());
        for (text, mode, words) in [
            ("0123456789abcde\n", 0o600, "fewer than 16"),
            ("0123456789abcdef", 0o604, "all users"),
            ("0123456789abcdef", 0o602, "all users"),
        ] {
            let bad = file(text, mode);
            let why = Key::read(bad.path()).expect_err(words).to_string();
            assert!(why.contains(words), "{why}");
        }
        let why = Key::read(Path::new("/nonexistent")).expect_err("no file");
        assert!(why.to_string().contains("/nonexistent"));
    }

    #[test]
    fn what_was_changed_or_made_with_another_key_does_not_open() {
        let key = Key::of(b"0123456789abcdef");
        let sealed = key.seal(b"hello".to_vec());
        assert_eq!(key.open(&sealed), Some(&b"hello"[..]));
        assert_eq!(Key::of(b"0123456789abcdeg").open(&sealed), None);
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(key.open(&changed), None);
        }
        assert_eq!(key.open(&sealed[..CODE - 1]), None);
    }
}
