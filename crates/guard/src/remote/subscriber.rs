//! A guard's side: subscribes to a publisher, and keeps what it last reported.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::key::{Key, Nonce, nonce};
use super::message::{LONGEST, Report, State, Subscription};
use super::{RENEWAL, SILENCE, counts_from};
use crate::listening::is_ours;

/// Between two subscriptions that were not answered.
const RETRY: Duration = Duration::from_millis(100);
/// Between any two, however they are answered.
const SOONEST: Duration = Duration::from_millis(20);
/// Subscriptions whose answers are awaited: a report may take longer than [`RETRY`].
const QUESTIONS: usize = 8;
/// After this long without a report, a new socket is tried: the machine's addresses may have changed.
const STALE: Duration = Duration::from_secs(5);
/// Datagrams that are read at a time.
const MOST_READS: usize = 64;

/// A publisher that is asked for hazards.
#[derive(Debug)]
pub struct Source {
    address: SocketAddr,
    key: Key,
    /// `None`: there is no way there at present.
    socket: Option<UdpSocket>,
    /// The replicas that it is asked for, with the slots of their words.
    wants: Vec<(u32, SocketAddr)>,
    /// The subscriptions that may still be answered, the latest first: their random numbers, and the
    /// slots in the order of the report.
    questions: VecDeque<(Nonce, Vec<u32>)>,
    cookie: Nonce,
    /// Numbers of the latest subscription and report.
    subscription_number: u64,
    report_number: u64,
    states: Vec<(u32, SocketAddr, State)>,
    reported: Option<Instant>,
    /// When it was made, when its socket was, and when the latest subscription was sent.
    made: Instant,
    since: Instant,
    asked: Option<Instant>,
    /// The next subscription is due at once.
    is_due: bool,
}

impl Source {
    /// The publisher at this address. Nothing is sent yet.
    #[must_use]
    pub fn new(address: SocketAddr, key: Key) -> Self {
        Self {
            address,
            key,
            socket: connect(address).ok(),
            wants: Vec::new(),
            questions: VecDeque::new(),
            cookie: Nonce::default(),
            subscription_number: counts_from(),
            report_number: 0,
            states: Vec::new(),
            reported: None,
            made: Instant::now(),
            since: Instant::now(),
            asked: None,
            is_due: true,
        }
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn socket(&self) -> Option<&UdpSocket> {
        self.socket.as_ref()
    }

    /// How surely it means the same replica by this address as we do: more is better.
    pub(crate) fn nearness(&self, replica: SocketAddr) -> u8 {
        let (at, ip) = (
            self.address.ip().to_canonical(),
            replica.ip().to_canonical(),
        );
        match at {
            _ if at == ip => 2,
            _ if at.is_loopback() => 1,
            _ => 0,
        }
    }

    /// Asks for these replicas from now on. What was known of others is forgotten.
    pub(crate) fn want(&mut self, replicas: impl Iterator<Item = (u32, SocketAddr)>) {
        // On another machine, a loopback address means another server.
        let here = is_ours(self.address.ip());
        let is_loopback = |ip: IpAddr| ip.to_canonical().is_loopback();
        let wants: Vec<_> = replicas
            .filter(|(_, replica)| here || !is_loopback(replica.ip()))
            .collect();
        if wants != self.wants {
            self.states
                .retain(|(slot, replica, _)| wants.contains(&(*slot, *replica)));
            self.wants = wants;
            self.questions.clear();
            self.is_due = true;
        }
    }

    /// Subscribes, if that is due.
    pub(crate) fn renew(&mut self, now: Instant) {
        let pause = match self.is_reporting(now) {
            _ if self.is_due => SOONEST,
            true => RENEWAL,
            false => RETRY,
        };
        let is_early = self.asked.is_some_and(|asked| now - asked < pause);
        if self.wants.is_empty() || is_early {
            return;
        }
        let quiet_since = self.reported.map_or(self.since, |at| at.max(self.since));
        if self.socket.is_none() || now - quiet_since > STALE {
            self.since = now;
            self.socket = connect(self.address).ok();
        }
        self.asked = Some(now);
        self.is_due = false;
        let (Some(socket), Ok(nonce)) = (&self.socket, nonce()) else {
            return;
        };
        let slots = self.wants.iter().map(|(slot, _)| *slot).collect();
        self.questions.push_front((nonce, slots));
        self.questions.truncate(QUESTIONS);
        self.subscription_number += 1;
        let subscription = Subscription {
            nonce,
            cookie: self.cookie,
            sequence: self.subscription_number,
            replicas: self.wants.iter().map(|(_, replica)| *replica).collect(),
        };
        // It is sent again soon, if this was lost or nobody is there.
        let _ = socket.send(&subscription.encode(&self.key));
    }

    /// Reads the reports that have come. `are_late`: they may be too old to count.
    pub(crate) fn receive(&mut self, now: Instant, are_late: bool) {
        let mut bytes = [0; LONGEST];
        for _ in 0..MOST_READS {
            let Some(socket) = &self.socket else {
                return;
            };
            match socket.recv(&mut bytes) {
                Ok(length) if !are_late => {
                    if let Some(report) = Report::decode(&bytes[..length], &self.key) {
                        self.take(report, now);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                _ => {} // late, or nobody listened there when it was sent
            }
        }
    }

    fn take(&mut self, report: Report, now: Instant) {
        let asked = self.questions.iter();
        let mut asked = asked.map(|(nonce, _)| *nonce == report.nonce);
        let Some(at) = asked.position(|is_same| is_same) else {
            return; // an old one, sent again
        };
        if self.questions.len() > at + 1 {
            // The number is new, so the report is: another process may have begun to count anew.
            self.questions.truncate(at + 1);
            self.report_number = 0;
        }
        if report.sequence <= self.report_number {
            return; // it was overtaken
        }
        self.report_number = report.sequence;
        self.cookie = report.cookie;
        let slots = &self.questions[at].1;
        if report.replicas.is_empty() {
            self.is_due = true;
        } else if report.replicas.len() == slots.len() {
            let reported = slots.iter().zip(report.replicas);
            self.states = reported
                .filter_map(|(slot, state)| {
                    let (_, replica) = self.wants.iter().find(|(of, _)| of == slot)?;
                    Some((*slot, *replica, state?))
                })
                .collect();
            self.reported = Some(now);
        }
    }

    /// Whether it has reported lately.
    pub(crate) fn is_reporting(&self, now: Instant) -> bool {
        self.reported.is_some_and(|at| now - at < SILENCE)
    }

    /// Whether it may answer soon: it has reported lately, or was not asked before.
    pub(crate) fn is_worth_waiting(&self) -> bool {
        self.is_reporting(Instant::now()) || self.reported.is_none() && self.made.elapsed() < STALE
    }

    /// Whether all that was asked for is known, so that nobody needs to wait.
    pub(crate) fn has_answered(&self) -> bool {
        self.states.len() == self.wants.len()
    }

    /// What it says of the replica in this slot, if it reports.
    pub(crate) fn state(&self, slot: u32, now: Instant) -> Option<&State> {
        let mut states = self.states.iter();
        let (.., state) = states.find(|(of, ..)| *of == slot)?;
        self.is_reporting(now).then_some(state)
    }
}

fn connect(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = if address.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::Coverage;

    const KEY: &[u8] = b"0123456789abcdef";

    /// A publisher that says what a test wants, and the source that asks it.
    struct Pair {
        publisher: UdpSocket,
        source: Source,
        now: Instant,
    }

    impl Pair {
        fn new() -> Self {
            let publisher = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            let wait = Some(Duration::from_secs(10));
            publisher.set_read_timeout(wait).expect("a timeout");
            let address = publisher.local_addr().expect("bound");
            let mut source = Source::new(address, Key::of(KEY));
            let replica = "127.0.0.1:80".parse().expect("an address");
            source.want([(3, replica)].into_iter());
            let now = Instant::now();
            Self {
                publisher,
                source,
                now,
            }
        }

        /// The next subscription, and where it came from.
        fn subscription(&mut self) -> (Subscription, SocketAddr) {
            self.now += RENEWAL;
            self.source.renew(self.now);
            let mut bytes = [0; LONGEST];
            let (length, from) = self.publisher.recv_from(&mut bytes).expect("it subscribes");
            let asked = Subscription::decode(&bytes[..length], &Key::of(KEY));
            (asked.expect("with the key"), from)
        }

        fn report(&mut self, to: SocketAddr, nonce: Nonce, sequence: u64, age: u32) {
            let state = State {
                coverage: Coverage::Kernel,
                incarnation: 1,
                life: 1,
                hazards: [Some(age), None, None, None, None, None],
            };
            let report = Report {
                nonce,
                cookie: [7; 16],
                sequence,
                replicas: vec![Some(state)],
            };
            let bytes = report.encode(&Key::of(KEY));
            self.publisher.send_to(&bytes, to).expect("sent");
            self.source.receive(self.now, false);
        }

        fn age(&self) -> Option<u32> {
            self.source.state(3, self.now)?.hazards[0]
        }
    }

    #[test]
    fn the_latest_report_counts_until_the_publisher_is_silent() {
        let mut pair = Pair::new();
        assert!(!pair.source.has_answered());
        let (asked, from) = pair.subscription();
        assert_eq!(asked.cookie, Nonce::default());
        pair.report(from, asked.nonce, 10, 5);
        assert_eq!(pair.age(), Some(5));
        pair.report(from, asked.nonce, 9, 6);
        assert_eq!(pair.age(), Some(5), "an earlier one was overtaken");
        assert!(pair.source.has_answered());
        pair.now += SILENCE;
        assert_eq!(pair.age(), None);
    }

    #[test]
    fn a_report_that_is_sent_again_later_is_refused() {
        let mut pair = Pair::new();
        let (first, from) = pair.subscription();
        pair.report(from, first.nonce, 10, 1);
        let (second, _) = pair.subscription();
        assert_eq!(second.cookie, [7; 16]);
        pair.report(from, second.nonce, 4, 2);
        assert_eq!(pair.age(), Some(2), "a publisher that has started again");
        pair.report(from, first.nonce, 99, 3);
        assert_eq!(pair.age(), Some(2), "one of an earlier subscription");
    }

    #[test]
    fn a_loopback_address_is_not_asked_of_another_machine() {
        let far = "192.0.2.1:9747".parse().expect("an address");
        let mut source = Source::new(far, Key::of(KEY));
        let replicas = ["127.0.0.1:80", "192.0.2.1:80"].map(|one| one.parse().expect("one"));
        source.want((0..).zip(replicas));
        assert_eq!(source.wants.len(), 1);
    }
}
