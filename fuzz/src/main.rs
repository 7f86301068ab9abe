//! One program for all inputs that Rust parses: `TARGET=elf fuzz CORPUS`. `fuzz/run` builds and runs
//! it. `explain` reads the ledgers, and `fuzz/ledgers.py` fuzzes that.
#![no_main]

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use tailscope_agent::fuzzing as agent;
use tailscope_guard::fuzzing as guard;
use tailscope_observe::resolve::fuzzing as observe;
use tailscope_record::{fuzz_headers, fuzz_memory};
use tailscope_sdk_server::region::Region;
use tailscope_signals::meters::{self, Meters};
use tailscope_signals::retention::{Kept, Retention};
use tailscope_signals::row::Row;
use tailscope_symbols::elf::Elf;
use tailscope_symbols::functions::Functions;
use tailscope_symbols::lines::Lines;
use tailscope_symbols::perf_map;
use tailscope_symbols::sdk::{Address, SdkFile};
use tailscope_symbols::unwind::{Code, Memory, Thread, Unwinder};
use tailscope_symbols::{cxx, table, usdt};
use tailscope_timeline::{Trace, analyze, lines, perfetto, picture};

/// Addresses that are looked up in each program.
const ADDRESSES: [u64; 5] = [0, 0x1000, 0x1129, 0x1139, u64::MAX];

/// The input that is fuzzed in this process.
static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

fuzz_target!(|bytes: &[u8]| (TARGET.get_or_init(chosen))(bytes));

fn chosen() -> fn(&[u8]) {
    match std::env::var("TARGET").as_deref() {
        Ok("region") => region,
        Ok("row") => row,
        Ok("elf") => elf,
        Ok("perf-map") => jit_names,
        Ok("hsperfdata") => observe::hsperfdata,
        Ok("window") => window,
        Ok("agent-toml") => |bytes| agent::config(&String::from_utf8_lossy(bytes)),
        Ok("otlp-answer") => agent::collector_answer,
        Ok("metrics-request") => agent::metrics_request,
        Ok("guard-request") => guard::requests,
        Ok("guard-datagram") => guard::datagrams,
        Ok("http2-headers") => fuzz_headers,
        Ok("python-memory") => fuzz_memory,
        other => panic!("TARGET={other:?} is no target: see fuzz/run"),
    }
}

/// A file of these bytes, in memory.
fn file_of(bytes: &[u8]) -> File {
    let mut file = File::from(memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("memory"));
    file.write_all(bytes).expect("written");
    file
}

/// A folder of this process.
fn folder() -> PathBuf {
    thread_local!(static FOLDER: RefCell<Option<PathBuf>> = const { RefCell::new(None) });
    FOLDER.with_borrow_mut(|folder| {
        folder
            .get_or_insert_with(|| {
                let path = std::env::temp_dir().join(format!("fuzz-{}", std::process::id()));
                fs::create_dir_all(&path).expect("a folder");
                path
            })
            .clone()
    })
}

/// First how many words are scribbled, then these, then rows.
fn region(bytes: &[u8]) {
    thread_local!(static METERS: Meters = {
        let file = memfd_create("meters", MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&file, meters::bytes() as u64).expect("longer");
        Meters::map(&file).expect("mapped")
    });
    let Some((words, rest)) = bytes.split_first() else {
        return;
    };
    let retention = Retention {
        always_from: None,
        others: Kept::ALWAYS,
    };
    let mut region = Region::create(1 << 32, retention).expect("memory");
    let (words, rows) = rest.split_at(rest.len().min(usize::from(*words) * 8));
    let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    METERS.with(|meters| {
        for _ in 0..2 {
            region.leave(rows);
            region.scribble(
                words
                    .chunks_exact(8)
                    .map(|pair| (word(pair), word(&pair[4..]))),
            );
            region.drain(meters, |names, row| {
                let _ = names.get(row.name);
            });
        }
    });
    let _ = (region.loss(), region.refusal());
}

fn row(bytes: &[u8]) {
    if let Ok((_, length)) = Row::parse(bytes) {
        assert!(length > 0 && length <= bytes.len());
    }
}

fn elf(bytes: &[u8]) {
    let _ = SdkFile::read(file_of(bytes), PathBuf::from("fuzz"), Address::Second);
    let file = file_of(bytes);
    let _ = table::variables(&file);
    for function in table::functions(&file).unwrap_or_default().all {
        let _ = (
            cxx::plain_name(&function.name),
            cxx::signature(&function.name),
        );
    }
    let _ = table::offsets(&file, &ADDRESSES);
    if let Ok(elf) = Elf::of(&file)
        && let Ok(notes) = usdt::notes(&elf)
    {
        let _ = usdt::places(&elf, &notes.iter().collect::<Vec<_>>());
    }
    let code = Code::of(&file, 1 << 24).unwrap_or_default();
    let mut unwinder = Unwinder::default();
    unwinder.add(&code, 0x1000..0x10_0000, 0x1000);
    let lines = Lines::of(file);
    let functions = Functions::of(file_of(bytes), None);
    for address in ADDRESSES {
        let _ = (lines.find(address), functions.find(address));
        let thread = Thread {
            ip: address,
            sp: 0x7000,
            fp: 0x7010,
            lr: 0,
            from: 0x7000,
            stack: &bytes[..bytes.len().min(1 << 14)],
        };
        let _ = unwinder.chain(&mut Memory::default(), thread, |_| true);
    }
}

fn jit_names(bytes: &[u8]) {
    let (length, room) = (bytes.len() as u64, 1 << 15);
    let asked = ADDRESSES.into_iter().collect();
    let names = perf_map::names(&file_of(bytes), length, room, asked).expect("in memory");
    assert!(names.values().all(|name| !name.is_empty()));
}

fn window(bytes: &[u8]) {
    let path = folder().join("window.timeline");
    fs::write(&path, bytes).expect("written");
    if let Ok(trace) = Trace::open(&path) {
        let told = analyze(&trace, None, 10);
        for story in told.stories.iter().take(2) {
            let _ = picture(&trace, story);
        }
        let _ = perfetto::write(&trace, &mut std::io::sink());
        lines::lines(&trace, &lines::Wanted::default()).for_each(drop);
    }
}
