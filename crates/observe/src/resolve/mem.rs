//! `mem:PID:SYMBOL`: a global variable of an unmodified process.

use std::io;
use std::sync::Arc;

use tailscope_process::maps::{self, Mapping};
use tailscope_signals::remote::Remote;
use tailscope_signals::view::View;
use tailscope_symbols::debug_file::DebugFile;
use tailscope_symbols::table::{self, Symbol, Symbols};

use super::{ResolveError, Wanted};
use crate::signal::{Names, Reader, Signal};

const PAGE: u64 = 4096;

/// Where the variable is in the process, and how long it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    address: u64,
    width: usize,
}

/// How many bytes are read of a variable at an offset into it: all of a number, of anything longer
/// the widest number that is aligned there.
fn width(variable: &Symbol, offset: u64) -> Option<usize> {
    let left = match variable.size {
        0 => 8,
        size => size.checked_sub(offset)?,
    };
    let address = variable.address.wrapping_add(offset);
    [8u64, 4, 2, 1]
        .into_iter()
        .find(|width| *width <= left && address.is_multiple_of(*width))
        .map(|width| width as usize)
}

/// The variables of a program or library, and those that only its debug symbols name.
fn variables_of(pid: u32, mapped: &Mapping) -> io::Result<Symbols> {
    let file = mapped.open(pid)?;
    let mut variables = table::variables(&file)?;
    if variables.stripped
        && let Some(debug) = DebugFile::of_mapped(pid, mapped, &file).found
    {
        variables.all.extend(table::variables(&debug)?.all);
        variables.stripped = false;
    }
    Ok(variables)
}

fn place(
    wanted: &Wanted,
    symbol: &str,
    offset: u64,
) -> Result<(Place, Vec<Mapping>), ResolveError> {
    let pid = wanted.owner.pid;
    let maps = maps::read(pid).map_err(wanted.system("read what it has mapped"))?;
    let mut names = Vec::new();
    let mut stripped = Vec::new();
    let mut seen = Vec::new();
    // The program itself comes first in most maps, and its variables before those of libraries.
    for first in maps.iter().filter(|m| m.has_path() && !m.shared) {
        if seen.contains(&(first.file, &first.path)) {
            continue;
        }
        seen.push((first.file, &first.path));
        let Ok(variables) = variables_of(pid, first) else {
            continue; // no program: fonts, archives, locales
        };
        let named = |v: &&Symbol| v.name == symbol;
        if let Some(variable) = variables.all.iter().find(named) {
            if variable.is_thread_local() {
                return Err(wanted.none(format!(
                    "{symbol} is thread-local, so it has no single address"
                )));
            }
            let Some(width) = width(variable, offset) else {
                return Err(wanted.none(format!(
                    "{symbol} has {} bytes, so offset {offset} is outside of it",
                    variable.size
                )));
            };
            let Some(bias) = variables.bias(first) else {
                return Err(wanted.none(format!("the load address of {} is not clear", first.path)));
            };
            let address = variable.address.wrapping_add(bias).wrapping_add(offset);
            return Ok((Place { address, width }, maps));
        }
        if variables.stripped {
            stripped.push(first.path.clone());
        }
        names.extend(variables.all.into_iter().map(|variable| variable.name));
    }
    if names.is_empty() && !stripped.is_empty() {
        return Err(wanted.none(format!(
            "its program is stripped ({}); install its debug symbols",
            stripped.join(", ")
        )));
    }
    Err(wanted.unknown("global variable", symbol, names.iter().map(String::as_str)))
}

pub(super) fn resolve(wanted: &Wanted, symbol: &str, offset: u64) -> Result<Signal, ResolveError> {
    let pid = wanted.owner.pid;
    let (place, maps) = place(wanted, symbol, offset)?;
    let inside = maps
        .iter()
        .find(|m| m.addresses().contains(&place.address))
        .ok_or_else(|| wanted.none(format!("{symbol} is not mapped")))?;
    let (how, reader) = if inside.shared {
        let at = place.address - inside.start + inside.offset;
        let view = inside
            .open(pid)
            .and_then(|file| View::map(&file, at & !(PAGE - 1), PAGE as usize))
            .map_err(wanted.system("map its shared memory"))?;
        let word = view
            .word((at & (PAGE - 1)) as usize, place.width)
            .ok_or_else(|| wanted.none(format!("{symbol} is not aligned")))?;
        ("a load from memory that it shares", Reader::Load(word))
    } else {
        let remote = Remote::open(pid, place.address, place.width)
            .map_err(wanted.system("read the memory of the process"))?;
        let how = "a system call for each value (process_vm_readv)";
        (how, Reader::Copy(remote))
    };
    Ok(Signal {
        name: wanted.signal.clone(),
        kind: None,
        owner: Some(Arc::clone(&wanted.owner)),
        names: Names::None,
        how: how.into(),
        reader,
    })
}

#[cfg(test)]
mod tests {
    use tailscope_symbols::elf::STT_OBJECT;

    use super::*;

    fn variable(address: u64, size: u64) -> Symbol {
        Symbol {
            name: "v".into(),
            address,
            size,
            kind: STT_OBJECT,
        }
    }

    #[test]
    fn as_much_is_read_as_a_number_has() {
        assert_eq!(width(&variable(0x1000, 8), 0), Some(8));
        assert_eq!(width(&variable(0x1004, 4), 0), Some(4));
        assert_eq!(width(&variable(0x1000, 100), 96), Some(4));
        assert_eq!(width(&variable(0x1000, 100), 8), Some(8));
        assert_eq!(width(&variable(0x1000, 100), 100), None);
        assert_eq!(width(&variable(0x1000, 0), 16), Some(8));
        assert_eq!(width(&variable(0x1001, 1), 0), Some(1));
        assert_eq!(width(&variable(0x1000, 4), 8), None);
    }

    /// Read by this very test.
    #[unsafe(no_mangle)]
    static TAILSCOPE_TEST_VARIABLE: std::sync::atomic::AtomicU64 =
        std::sync::atomic::AtomicU64::new(0);

    #[test]
    fn a_variable_of_ours_is_read_while_it_changes() {
        use std::sync::atomic::Ordering::Relaxed;

        use crate::signal::{Any, Read};

        TAILSCOPE_TEST_VARIABLE.store(41, Relaxed);
        let name = format!("mem:{}:TAILSCOPE_TEST_VARIABLE", std::process::id());
        let signal = crate::resolve::Resolver::default()
            .resolve(&name.parse().expect("a name"))
            .expect("it is there");
        let any = Any::new(signal.reader.clone(), Arc::default());
        assert_eq!(any.read(), 41);
        TAILSCOPE_TEST_VARIABLE.store(42, Relaxed);
        assert_eq!((any.read(), signal.mask()), (42, u64::MAX));
    }
}
