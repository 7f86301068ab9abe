//! Hazards of replicas on other machines, or of processes that this one may not look at.
//!
//! A [`Publisher`] watches the replicas of its machine. A guard subscribes there by datagram, with the
//! addresses of its replicas. It gets a report at once when a hazard begins or ends, and a heartbeat
//! in between. A report has the whole state, so a lost one is made up for by the next. Without
//! reports for [`SILENCE`], nothing is known of these replicas.
//!
//! All datagrams are authenticated with a key that both sides have. Reports repeat a random number
//! of the subscription, so an earlier one can't be sent again. A publisher sends nothing but one short
//! datagram to an address that has not yet answered with its cookie.

mod key;
mod message;
mod publisher;
mod subscriber;

use std::time::{Duration, SystemTime};

pub use self::key::{Key, KeyError};
#[cfg(any(test, fuzzing))]
pub(crate) use self::message::fuzz;
pub use self::publisher::Publisher;
pub use self::subscriber::Source;

/// Between two reports in which nothing has changed.
const HEARTBEAT: Duration = Duration::from_millis(50);
/// A publisher that was silent for this long counts as gone: three heartbeats were lost.
pub(crate) const SILENCE: Duration = Duration::from_millis(200);
/// Between two subscriptions, each with a new random number.
const RENEWAL: Duration = Duration::from_secs(1);
/// A guard that has not subscribed again for this long gets no more reports.
const LEASE: Duration = Duration::from_secs(4);

/// Where the numbers of a process's datagrams begin: above all that an earlier process has sent.
fn counts_from() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}
