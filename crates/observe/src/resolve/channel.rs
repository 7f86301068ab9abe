//! `channel:PID:NAME`: what the process makes with `tailscope_channel.h`.

use std::mem::{offset_of, size_of};
use std::sync::Arc;

use rustix::fs::{SealFlags, fcntl_get_seals};
use tailscope_process::maps;
use tailscope_signals::abi;
use tailscope_signals::view::View;

use super::{ResolveError, Wanted};
use crate::mapped::{Functions, Places};
use crate::signal::{Names, Reader, Role, Signal};

/// What a channel's values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Values {
    Numbers,
    Code,
    Places,
}

/// A channel as it is described.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Described {
    name: String,
    kind: Option<Role>,
    values: Values,
    value_at: usize,
}

fn described(view: &View) -> Vec<Described> {
    let magic = view.copy(offset_of!(abi::ts_channels, magic), 8);
    if magic != Some(abi::TS_CHANNEL_MAGIC.to_le_bytes().to_vec()) {
        return Vec::new();
    }
    let mut all = Vec::new();
    for slot in 0..abi::TS_CHANNEL_SLOTS as usize {
        let at = offset_of!(abi::ts_channels, slot) + slot * size_of::<abi::ts_channel>();
        let kind = view.copy(at + offset_of!(abi::ts_channel, kind), 4);
        let kind = kind.map_or(0, |bytes| u32::from(bytes[0]));
        if kind == abi::TS_CHANNEL_FREE {
            break;
        }
        let bytes = view.copy(
            at + offset_of!(abi::ts_channel, name),
            abi::TS_CHANNEL_NAME as usize,
        );
        let bytes = bytes.unwrap_or_default();
        let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        all.push(Described {
            name: String::from_utf8_lossy(name).into_owned(),
            kind: match kind {
                abi::TS_COUNTER => Some(Role::Counter),
                abi::TS_TAG | abi::TS_CODE | abi::TS_PLACE => Some(Role::Tag),
                _ => None,
            },
            values: match kind {
                abi::TS_CODE => Values::Code,
                abi::TS_PLACE => Values::Places,
                _ => Values::Numbers,
            },
            value_at: at + offset_of!(abi::ts_channel, value),
        });
    }
    all
}

fn names_of(wanted: &Wanted, values: Values) -> Result<Names, ResolveError> {
    let pid = wanted.owner.pid;
    match values {
        Values::Numbers => Ok(Names::None),
        Values::Code => {
            let functions = Functions::of(pid).map_err(wanted.system("read its functions"))?;
            Ok(Names::Code(Arc::new(functions)))
        }
        Values::Places => {
            let places = Places::of(pid).map_err(wanted.system("read its table of places"))?;
            let places =
                places.ok_or_else(|| wanted.none("its table of place names is missing"))?;
            Ok(Names::Places(Arc::new(places)))
        }
    }
}

pub(super) fn resolve(wanted: &Wanted, name: &str) -> Result<Signal, ResolveError> {
    let pid = wanted.owner.pid;
    let maps = maps::read(pid).map_err(wanted.system("read what it has mapped"))?;
    let mut names = Vec::new();
    let mut any = false;
    for mapped in maps
        .iter()
        .filter(|m| m.shared && m.is_memory_file(abi::TS_CHANNEL_FILE))
    {
        any = true;
        let file = mapped
            .open(pid)
            .map_err(wanted.system("open its channels"))?;
        let sealed = fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        let long = file
            .metadata()
            .is_ok_and(|file| file.len() >= size_of::<abi::ts_channels>() as u64);
        if !sealed || !long {
            return Err(wanted.none(
                "its channels can shrink while they are read, so they are not those of \
                 tailscope_channel.h",
            ));
        }
        let view: Arc<View> = View::map(&file, 0, size_of::<abi::ts_channels>())
            .map_err(wanted.system("map its channels"))?;
        let all = described(&view);
        if let Some(found) = all.iter().find(|channel| channel.name == name) {
            let word = view
                .word(found.value_at, 8)
                .ok_or_else(|| wanted.none("its channels have an unknown layout"))?;
            return Ok(Signal {
                name: wanted.signal.clone(),
                kind: found.kind,
                owner: Some(Arc::clone(&wanted.owner)),
                names: names_of(wanted, found.values)?,
                how: "a load from the process's shared memory".into(),
                reader: Reader::Load(word),
            });
        }
        names.extend(all.into_iter().map(|channel| channel.name));
    }
    if !any {
        return Err(wanted.none(format!(
            "process {pid} ({}) has no channels; create them with TS_CHANNEL of \
             tailscope_channel.h, or with the SDK for Rust or Java",
            wanted.owner.name
        )));
    }
    Err(wanted.unknown("channel", name, names.iter().map(String::as_str)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    fn view(bytes: &[u8]) -> Arc<View> {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(bytes).expect("written");
        View::map(&file, 0, bytes.len()).expect("mapped")
    }

    fn page(channels: &[(&str, u32)]) -> Vec<u8> {
        let mut bytes = vec![0; size_of::<abi::ts_channels>()];
        bytes[..8].copy_from_slice(&abi::TS_CHANNEL_MAGIC.to_le_bytes());
        for (slot, (name, kind)) in channels.iter().enumerate() {
            let at = 64 + slot * 64;
            bytes[at + 8..at + 12].copy_from_slice(&kind.to_le_bytes());
            bytes[at + 16..at + 16 + name.len()].copy_from_slice(name.as_bytes());
        }
        bytes
    }

    #[test]
    fn channels_are_where_the_header_puts_them() {
        let all = described(&view(&page(&[("served", 1), ("phase", 2), ("new", 9)])));
        let seen: Vec<_> = all.iter().map(|c| (&*c.name, c.kind, c.value_at)).collect();
        assert_eq!(
            seen,
            [
                ("served", Some(Role::Counter), 64),
                ("phase", Some(Role::Tag), 128),
                ("new", None, 192)
            ]
        );
    }

    proptest! {
        #[test]
        fn foreign_pages_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 4096), right: bool) {
            if right {
                bytes[..8].copy_from_slice(&abi::TS_CHANNEL_MAGIC.to_le_bytes());
            }
            let _ = described(&view(&bytes));
        }
    }
}
