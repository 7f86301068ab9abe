//! Which members of variables and types the threads access at a line.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use tailscope_symbols::data::Field;

use super::LineField;
use crate::profile::hot::{Hot, Piece, User, pieces};
use crate::profile::{Profile, Thread};
use crate::program::Program;

/// Members of one line and thread that are named.
const MOST_FIELDS: usize = 8;
/// How long members are looked for: a program may be large.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct Members {
    pieces: HashMap<(u32, Thread), Vec<Piece>>,
    /// Those that were looked for, by line and thread.
    known: HashMap<(u32, Thread), Vec<LineField>>,
    until: Instant,
    /// The time was enough for all.
    pub(super) complete: bool,
}

impl Members {
    /// Of these lines.
    pub(super) fn of(profile: &Profile, lines: &HashSet<u32>) -> Self {
        Self {
            pieces: pieces(profile, lines),
            known: HashMap::new(),
            until: Instant::now() + PATIENCE,
            complete: true,
        }
    }

    pub(super) fn of_user(
        &mut self,
        program: &mut Program,
        line: &Hot,
        user: &User,
    ) -> Vec<LineField> {
        let key = (line.line, user.thread);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let mut fields: Vec<LineField> = Vec::new();
        for piece in self.pieces.get(&key).into_iter().flatten() {
            if Instant::now() > self.until {
                self.complete = false;
                break;
            }
            let address = line.address + u64::from(piece.offset);
            let Some(found) = program.field(piece.ip, address, piece.before) else {
                continue;
            };
            add(&mut fields, piece, found);
        }
        self.known.insert(key, fields.clone());
        fields
    }
}

fn add(fields: &mut Vec<LineField>, piece: &Piece, found: Field) {
    let (first, behind) = (piece.offset.into(), (piece.offset + piece.size).into());
    let name = found.of + &found.way;
    if let Some(known) = fields.iter_mut().find(|field| field.name == name) {
        known.bytes[1] = known.bytes[1].max(behind);
        known.accesses += piece.accesses;
    } else if fields.len() < MOST_FIELDS {
        fields.push(LineField {
            name,
            kind: found.kind,
            bytes: [first, behind],
            accesses: piece.accesses,
        });
    }
}
