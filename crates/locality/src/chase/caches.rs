//! What sysfs says about the caches of a CPU.

use std::fs;
use std::path::Path;

use serde::Serialize;

/// Bytes of the data caches; `None` if the kernel does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Caches {
    /// Level 1, data.
    pub l1d: Option<u64>,
    /// Level 2.
    pub l2: Option<u64>,
    /// Level 3.
    pub l3: Option<u64>,
}

impl Caches {
    /// Of a CPU of this machine.
    #[must_use]
    pub fn of(cpu: u32) -> Self {
        Self::read(Path::new(&format!(
            "/sys/devices/system/cpu/cpu{cpu}/cache"
        )))
    }

    /// Of what a folder like `cpu0/cache` says.
    #[must_use]
    pub fn read(folder: &Path) -> Self {
        let mut caches = Self::default();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let text = |name| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
            let bytes = size(text("size").trim());
            match (text("level").trim(), text("type").trim()) {
                ("1", "Data" | "Unified") => caches.l1d = bytes,
                ("2", "Data" | "Unified") => caches.l2 = bytes,
                ("3", "Data" | "Unified") => caches.l3 = bytes,
                _ => {}
            }
        }
        caches
    }
}

/// `48K`, `2M`: units of 1,024.
fn size(text: &str) -> Option<u64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u64 = text[..end].parse().ok()?;
    let factor = match &text[end..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(factor).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_read_and_what_is_missing_stays_unknown() {
        let folder = tempfile::tempdir().expect("a folder");
        for (index, level, kind, size) in [
            ("index0", "1", "Data", "48K"),
            ("index1", "1", "Instruction", "32K"),
            ("index2", "2", "Unified", "2048K"),
            ("index3", "3", "Unified", "x"),
        ] {
            let cache = folder.path().join(index);
            fs::create_dir(&cache).expect("a folder");
            for (name, text) in [("level", level), ("type", kind), ("size", size)] {
                fs::write(cache.join(name), format!("{text}\n")).expect("a file");
            }
        }
        let read = Caches::read(folder.path());
        let expected = Caches {
            l1d: Some(48 << 10),
            l2: Some(2 << 20),
            l3: None,
        };
        assert_eq!(read, expected);
        assert_eq!(Caches::read(Path::new("/nowhere")), Caches::default());
    }
}
