//! How a request's numbers are written in a window's description of itself.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tailscope_signals::event::{Held, Sequence, Socket};

/// A module that serde takes for fields of a type that it does not know.
macro_rules! written_as {
    ($name:ident, $type:ty, $number:ty, $to:expr, $from:expr) => {
        pub(super) mod $name {
            use super::*;

            pub(in crate::request) fn serialize<S: Serializer>(
                value: &$type,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                let to: fn(&$type) -> $number = $to;
                to(value).serialize(serializer)
            }

            pub(in crate::request) fn deserialize<'de, D: Deserializer<'de>>(
                deserializer: D,
            ) -> Result<$type, D::Error> {
                let from: fn($number) -> $type = $from;
                <$number>::deserialize(deserializer).map(from)
            }
        }
    };
}

written_as!(socket, Socket, u32, |socket| socket.0, Socket);
written_as!(sequence, Sequence, u32, |place| place.0, Sequence);
written_as!(
    socket_or_none,
    Option<Socket>,
    Option<u32>,
    |socket| socket.map(|socket| socket.0),
    |number| number.map(Socket)
);
written_as!(
    sequence_or_none,
    Option<Sequence>,
    Option<u32>,
    |place| place.map(|place| place.0),
    |number| number.map(Sequence)
);
written_as!(held, Held, u16, number_of, held_of);

/// As the kernel's programs number them (`enum tl_held`).
const HELD: [Held; 6] = [
    Held::Not,
    Held::Nagle,
    Held::Cork,
    Held::Window,
    Held::Congestion,
    Held::Other,
];

fn number_of(held: &Held) -> u16 {
    let place = HELD.iter().position(|other| other == held);
    place.unwrap_or(HELD.len() - 1) as u16
}

fn held_of(number: u16) -> Held {
    HELD.get(usize::from(number))
        .copied()
        .unwrap_or(Held::Other)
}
