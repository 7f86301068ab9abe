//! Which members of variables and types the threads access at a line.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

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
    until: Instant,
}

impl Members {
    /// Of these lines.
    pub(super) fn of(profile: &Profile, lines: &HashSet<u32>) -> Self {
        Self {
            pieces: pieces(profile, lines),
            until: Instant::now() + PATIENCE,
        }
    }

    pub(super) fn of_user(
        &mut self,
        program: &mut Program,
        line: &Hot,
        user: &User,
    ) -> Vec<LineField> {
        let mut fields: Vec<LineField> = Vec::new();
        let pieces = self.pieces.get(&(line.line, user.thread));
        for piece in pieces.into_iter().flatten() {
            if Instant::now() > self.until {
                break;
            }
            let address = line.address + u64::from(piece.offset);
            let Some(found) = program.field(piece.ip, address, piece.before) else {
                continue;
            };
            let (first, behind) = (piece.offset, piece.offset + piece.size);
            let known = fields.iter_mut().find(|field| field.name == found.name);
            if let Some(known) = known {
                known.bytes[1] = known.bytes[1].max(behind.into());
                known.accesses += piece.accesses;
            } else if fields.len() < MOST_FIELDS {
                fields.push(LineField {
                    name: found.name,
                    kind: found.kind,
                    bytes: [first.into(), behind.into()],
                    accesses: piece.accesses,
                });
            }
        }
        fields
    }
}
