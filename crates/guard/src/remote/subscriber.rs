//! A guard's side: subscribes to a publisher, and keeps what it last reported.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::key::{Key, Nonce, nonce};
use super::message::{LONGEST, Report, State, Subscription};
use super::{RENEWAL, SILENCE};

/// Between two subscriptions that were not answered.
const RETRY: Duration = Duration::from_millis(100);
/// Between any two, however they are answered.
const SOONEST: Duration = Duration::from_millis(20);
/// After so long without a report, a new socket is tried: the machine's addresses may have changed.
const STALE: Duration = Duration::from_secs(5);
/// Datagrams that are read at a time.
const MOST_READS: usize = 64;

/// A publisher that is asked for hazards.
#[derive(Debug)]
pub struct Source {
    address: SocketAddr,
    key: Key,
    socket: UdpSocket,
    /// The replicas that it is asked for, with the slots of their words.
    wants: Vec<(u32, SocketAddr)>,
    /// The latest two subscriptions: their numbers, and the slots in the order of the report.
    questions: VecDeque<(Nonce, Vec<u32>)>,
    cookie: Nonce,
    sequence: u64,
    states: Vec<(u32, State)>,
    heard: Option<Instant>,
    /// When the socket was made, the latest subscription sent, and the next one is due.
    since: Instant,
    asked: Option<Instant>,
    next: Instant,
}

impl Source {
    /// The publisher at this address. Nothing is sent yet.
    ///
    /// # Errors
    /// If the system refuses a socket, or knows no way there.
    pub fn new(address: SocketAddr, key: Key) -> io::Result<Self> {
        let now = Instant::now();
        Ok(Self {
            address,
            key,
            socket: connect(address)?,
            wants: Vec::new(),
            questions: VecDeque::new(),
            cookie: Nonce::default(),
            sequence: 0,
            states: Vec::new(),
            heard: None,
            since: now,
            asked: None,
            next: now,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Asks for these replicas from now on. What was known of others is forgotten.
    pub(crate) fn want(&mut self, replicas: impl Iterator<Item = (u32, SocketAddr)>) {
        // A loopback address means another machine there.
        let here = self.address.ip().is_loopback();
        let wants: Vec<_> = replicas
            .filter(|(_, replica)| here || !replica.ip().is_loopback())
            .collect();
        if wants != self.wants {
            self.wants = wants;
            self.questions.clear();
            self.states.clear();
            self.next = Instant::now();
        }
    }

    /// Subscribes, if that is due.
    pub(crate) fn renew(&mut self, now: Instant) {
        let is_quick = self.asked.is_some_and(|asked| now - asked < SOONEST);
        if now < self.next || self.wants.is_empty() || is_quick {
            return;
        }
        if !self.is_heard(now) && now - self.since > STALE {
            self.since = now;
            if let Ok(socket) = connect(self.address) {
                self.socket = socket;
            }
        }
        self.next = now + if self.is_heard(now) { RENEWAL } else { RETRY };
        self.asked = Some(now);
        let Ok(nonce) = nonce() else {
            return;
        };
        let slots = self.wants.iter().map(|(slot, _)| *slot).collect();
        self.questions.push_front((nonce, slots));
        self.questions.truncate(2);
        let subscription = Subscription {
            nonce,
            cookie: self.cookie,
            replicas: self.wants.iter().map(|(_, replica)| *replica).collect(),
        };
        // It is sent again soon, if this was lost or nobody is there.
        let _ = self.socket.send(&subscription.encode(&self.key));
    }

    /// Reads the reports that have come.
    pub(crate) fn receive(&mut self, now: Instant) {
        let mut bytes = [0; LONGEST];
        for _ in 0..MOST_READS {
            match self.socket.recv(&mut bytes) {
                Ok(length) => {
                    if let Some(report) = Report::decode(&bytes[..length], &self.key) {
                        self.take(report, now);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {} // nobody listened there when it was sent
            }
        }
    }

    fn take(&mut self, report: Report, now: Instant) {
        let asked = self.questions.iter();
        let mut asked = asked.map(|(nonce, _)| *nonce == report.nonce);
        let Some(at) = asked.position(|is_same| is_same) else {
            return; // an old one, sent again
        };
        if at == 0 && self.questions.len() > 1 {
            // The number is new, so the report is: another process may have begun to count anew.
            self.questions.truncate(1);
            self.sequence = 0;
        }
        if report.sequence <= self.sequence {
            return; // it was overtaken
        }
        self.sequence = report.sequence;
        self.cookie = report.cookie;
        let slots = &self.questions[at].1;
        if report.replicas.is_empty() {
            self.next = now;
        } else if report.replicas.len() == slots.len() {
            self.states = slots.iter().copied().zip(report.replicas).collect();
            self.heard = Some(now);
        }
    }

    /// Whether it has reported lately.
    pub(crate) fn is_heard(&self, now: Instant) -> bool {
        self.heard.is_some_and(|heard| now - heard < SILENCE)
    }

    /// Whether all that was asked for is known, so that nobody needs to wait.
    pub(crate) fn has_answered(&self) -> bool {
        self.wants.is_empty() || !self.states.is_empty()
    }

    /// What it says of the replica in this slot, if it is heard.
    pub(crate) fn state(&self, slot: u32, now: Instant) -> Option<&State> {
        let mut states = self.states.iter();
        let (_, state) = states.find(|(of, _)| *of == slot)?;
        self.is_heard(now).then_some(state)
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
            let mut source = Source::new(address, Key::of(KEY)).expect("a socket");
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
            let (length, from) = self.publisher.recv_from(&mut bytes).expect("it asks");
            let asked = Subscription::decode(&bytes[..length], &Key::of(KEY));
            (asked.expect("with the key"), from)
        }

        fn report(&mut self, to: SocketAddr, nonce: Nonce, sequence: u64, age: u32) {
            let state = State {
                coverage: Coverage::Kernel,
                incarnation: 1,
                hazards: [Some(age), None, None, None, None, None],
            };
            let report = Report {
                nonce,
                cookie: [7; 16],
                sequence,
                replicas: vec![state],
            };
            let bytes = report.encode(&Key::of(KEY));
            self.publisher.send_to(&bytes, to).expect("sent");
            self.source.receive(self.now);
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
        let mut source = Source::new(far, Key::of(KEY)).expect("a socket");
        let replicas = ["127.0.0.1:80", "192.0.2.1:80"].map(|one| one.parse().expect("one"));
        source.want((0..).zip(replicas));
        assert_eq!(source.wants.len(), 1);
    }
}
