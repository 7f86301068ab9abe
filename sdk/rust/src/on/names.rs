//! The numbers that the region gives to names of spans.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::abi;
use super::process::Process;
use super::thread::Thread;

/// The number of a name in this region; `abi::NAMES` if there is no room.
pub(super) fn number(process: &Process, thread: &Thread, name: &'static str) -> u8 {
    let address = name.as_ptr() as usize;
    let place = &thread.names[address >> 2 & 15];
    match place.get() {
        (known, number) if known == address && address != 0 => number,
        _ => {
            let number = look_up(process, name);
            if number != abi::NAMES {
                place.set((address, number));
            }
            number
        }
    }
}

#[cold]
fn look_up(process: &Process, name: &str) -> u8 {
    let text = &name.as_bytes()[..name.len().min(abi::NAME_BYTES - 5)];
    if text.is_empty() {
        return abi::NAMES;
    }
    let length = text.len() as u32;
    for (number, entry) in process.region().names.iter().enumerate() {
        let mut have = entry.length.load(Acquire);
        if have == 0 {
            match entry
                .length
                .compare_exchange(0, abi::NAME_BUSY, AcqRel, Acquire)
            {
                Ok(_) => {
                    for (place, byte) in entry.text.iter().zip(text) {
                        place.store(*byte, Relaxed);
                    }
                    entry.length.store(length, Release);
                    have = length;
                }
                Err(other) => have = other,
            }
        }
        for _ in 0..10_000 {
            if have != abi::NAME_BUSY {
                break;
            }
            have = entry.length.load(Acquire);
        }
        let is_same = || {
            entry
                .text
                .iter()
                .zip(text)
                .all(|(a, b)| a.load(Relaxed) == *b)
        };
        if have == length && is_same() {
            return number as u8;
        }
    }
    abi::NAMES
}
