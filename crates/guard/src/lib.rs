//! Guard: a proxy in front of the replicas of a server, which steers requests around a pause.
//!
//! A [`Watcher`] keeps a hazard word for each replica, on a [`Board`]. It sees replicas on this machine,
//! and gets the hazards of others from a [`Publisher`] there (`remote`). A [`Guard`] forwards HTTP/1.1
//! requests: `accept` takes clients, `serve` speaks with them behind the `screen`, `replica` chooses
//! who gets a request, and `race` sends it once more where a hazard caught it. A request that must not
//! be executed twice is sent once, and again only if it was certainly never sent (`serve::once`).

#![forbid(unsafe_code)]

mod accept;
mod admin;
mod attach;
mod attempt;
mod board;
mod budget;
mod connection;
mod control;
mod figures;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod guard;
mod headers;
mod health;
mod hsperf;
mod latency;
mod listeners;
mod listening;
mod options;
mod pool;
mod proxy_protocol;
mod race;
mod remote;
mod replica;
mod reply_body;
mod request_body;
mod screen;
mod serve;
mod setup;
mod shared_stream;
mod silence;
mod target;
mod template;
mod thread;
mod tls;
mod warm;
mod watcher;
mod worker;

pub use board::{Board, Coverage};
pub use control::{Inherited, ask_for_status, control_folder, make_private_folder};
pub use guard::{Guard, StartError, raise_descriptors};
pub use options::Options;
pub use proxy_protocol::ProxyHeader;
pub use remote::{Key, KeyError, Publisher, Source};
pub use setup::Setup;
pub use tailscope_signals::hazard::{Active, Change, Kind};
pub use target::Target;
pub use tls::{Certificate, TlsError, Trust};
pub use watcher::{Say, Subject, Watcher};
