//! From what `--span` says to probes that the kernel can attach to.
//!
//! This happens before any BPF program is loaded. `locate.rs` opens the file as the recorded
//! process sees it, and keeps it open, so a replaced file stays the same one. `symbols.rs` finds
//! functions, also through a separate debug file.

use std::io;
use std::path::Path;

use tailscope_kernel::{Edge, Probe, Spot};
use tailscope_symbols::elf::Elf;
use tailscope_symbols::nearest::nearest;
use tailscope_symbols::usdt::{self, Note};

use crate::Process;
use crate::locate::{Located, locate};
use crate::probe::{Ends, Point, ProbeSource};
use crate::symbols::offsets_of;

/// A source's probes, found in the files that they are in.
#[derive(Debug)]
pub struct ResolvedProbes {
    /// As it was asked for.
    pub(crate) source: ProbeSource,
    pub(crate) files: Vec<Located>,
    /// Ends before begins, so that none begins that can't end.
    pub(crate) probes: Vec<Probe>,
}

/// A source's probes are not where it says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("--span {source_text}: {why}")]
pub struct UnresolvedError {
    source_text: String,
    why: String,
}

impl ResolvedProbes {
    /// Finds the probes of the source with this number. `launched`: the program of the command
    /// that is about to start.
    pub fn find(
        number: u8,
        source: &ProbeSource,
        processes: &[Process],
        launched: Option<&Path>,
    ) -> Result<Self, UnresolvedError> {
        let failed = |why| UnresolvedError {
            source_text: source.to_string(),
            why,
        };
        let files = locate(&source.file, processes, launched).map_err(failed)?;
        let mut probes = Vec::new();
        for file in &files {
            probes.extend(probes_in(number, &source.ends, file).map_err(failed)?);
        }
        probes.sort_by_key(|probe| probe.edge == Edge::Begin);
        Ok(Self {
            source: source.clone(),
            files,
            probes,
        })
    }

    /// The probes, ends before begins.
    #[must_use]
    pub fn probes(&self) -> &[Probe] {
        &self.probes
    }

    /// What its spans are called where they have no names of their own.
    #[must_use]
    pub fn span_name(&self) -> String {
        self.source.span_name()
    }

    /// What a person should know before the recording begins.
    pub(crate) fn notices(&self) -> impl Iterator<Item = String> {
        self.files.iter().filter(|file| file.replaced).map(|file| {
            format!(
                "{} was replaced after a process started from it; both files are probed",
                file.shown.display()
            )
        })
    }
}

fn probes_in(source: u8, ends: &Ends, file: &Located) -> Result<Vec<Probe>, String> {
    let probe = |edge, point: &Point, spot| Probe {
        source,
        edge,
        file: file.path(),
        spot,
        id: point.id,
        name: point.name,
    };
    let code = |point: &Point| offsets_of(file, &point.symbol).map(Spot::Code);
    Ok(match ends {
        Ends::Usdt {
            provider,
            begin,
            end,
        } => {
            let note = |point: &Point| usdt_spot(file, provider, &point.symbol);
            vec![
                probe(Edge::End, end, note(end)?),
                probe(Edge::Begin, begin, note(begin)?),
            ]
        }
        Ends::Functions { begin, end } => vec![
            probe(Edge::End, end, code(end)?),
            probe(Edge::Begin, begin, code(begin)?),
        ],
        Ends::Call(point) => {
            let spot = code(point)?;
            let mut back = probe(Edge::Return, point, spot.clone());
            (back.id, back.name) = (None, None); // a function's arguments are gone by then
            vec![back, probe(Edge::Begin, point, spot)]
        }
    })
}

fn usdt_spot(file: &Located, provider: &str, name: &str) -> Result<Spot, String> {
    let shown = file.shown.display();
    let unread = |e: io::Error| format!("can't read {shown}: {e}");
    let elf = Elf::of(&file.file).map_err(unread)?;
    let notes = usdt::notes(&elf).map_err(unread)?;
    let wanted: Vec<&Note> = notes
        .iter()
        .filter(|note| note.provider == provider && note.name == name)
        .collect();
    if !wanted.is_empty() {
        let places = usdt::places(&elf, &wanted).unwrap_or_default();
        return Ok(Spot::Usdt {
            provider: provider.to_owned(),
            name: name.to_owned(),
            places,
        });
    }
    if notes.is_empty() {
        return Err(format!(
            "{shown} has no USDT probes; use uprobe:{shown}:SYMBOL"
        ));
    }
    let mut providers: Vec<&str> = notes.iter().map(|note| note.provider.as_str()).collect();
    providers.sort_unstable();
    providers.dedup();
    if !providers.contains(&provider) {
        return Err(format!(
            "{shown} has no provider '{provider}'; it has {}",
            providers.join(", ")
        ));
    }
    let of_it = notes.iter().filter(|note| note.provider == provider);
    let mut names: Vec<&str> = of_it.map(|note| note.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    // Documents write with one dash what a note's name has two underlines for.
    let near = nearest(&name.replace('-', "__"), names.iter().copied());
    let like = if near.is_empty() {
        format!("it has {}", names.join(", "))
    } else {
        format!("similar names are {}", near.join(", "))
    };
    Err(format!("no probe '{provider}:{name}' in {shown}; {like}"))
}
