//! What the kernel takes for probes by itself: empty programs on some places of a file, attached as
//! the recorder attaches its own, until the standard input ends. `empty_uprobes FILE [r]OFFSET…`; an
//! `r` before the offset is the return of the function there. With `--floor` first, programs that do
//! the least that we know a span to take: the last place begins a span, those before it end it. For
//! bench/probe_cost.py.

use std::io::{Read, stdin};

use libbpf_rs::{ErrorExt, ObjectBuilder, UprobeMultiOpts};

static EMPTY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/probe.bpf.o"));
static FLOOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/floor.bpf.o"));

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let is_floor = words.first().is_some_and(|word| word == "--floor");
    if is_floor {
        words.remove(0);
    }
    let (file, places) = words.split_first().ok_or("no FILE")?;
    let (object, [begin, end]) = match is_floor {
        true => (FLOOR, ["floor_begin", "floor_end"]),
        false => (EMPTY, ["probe_uprobe_multi"; 2]),
    };
    let mut open = ObjectBuilder::default().open_memory(object)?;
    for mut program in open.progs_mut() {
        let wanted = program.name() == begin || program.name() == end;
        program.set_autoload(wanted);
    }
    let object = open.load()?;
    let mut links = Vec::new();
    for (i, place) in places.iter().enumerate() {
        let name = if i + 1 == places.len() { begin } else { end };
        let (retprobe, number) = match place.strip_prefix('r') {
            Some(number) => (true, number),
            None => (false, place.as_str()),
        };
        let options = UprobeMultiOpts {
            offsets: vec![number.parse()?],
            cookies: vec![1],
            retprobe,
            ..Default::default()
        };
        let program = object
            .progs_mut()
            .find(|program| program.name() == name)
            .ok_or("no program")?;
        links.push(
            program
                .attach_uprobe_multi_with_opts(-1, file, "", options)
                .context(format!("attach to {place}"))?,
        );
    }
    println!("ready");
    stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
