//! What the kernel takes for probes by itself: empty programs on some places of a file, attached as
//! the recorder attaches its own, until the standard input ends. `empty_uprobes FILE [r]OFFSET…`; an
//! `r` before the offset is the return of the function there. For bench/probe_cost.py.

use std::io::{Read, stdin};

use libbpf_rs::{ErrorExt, ObjectBuilder, UprobeMultiOpts};

static PROGRAMS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/probe.bpf.o"));

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (file, places) = words.split_first().ok_or("no FILE")?;
    let mut open = ObjectBuilder::default().open_memory(PROGRAMS)?;
    for mut program in open.progs_mut() {
        let wanted = program.name() == "probe_uprobe_multi";
        program.set_autoload(wanted);
    }
    let object = open.load()?;
    let mut links = Vec::new();
    for place in places {
        let (retprobe, number) = match place.strip_prefix('r') {
            Some(number) => (true, number),
            None => (false, place.as_str()),
        };
        let options = UprobeMultiOpts {
            offsets: vec![number.parse()?],
            retprobe,
            ..Default::default()
        };
        let program = object
            .progs_mut()
            .find(|program| program.name() == "probe_uprobe_multi")
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
