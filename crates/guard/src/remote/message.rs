//! What a guard and a publisher send each other, as bytes.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use tailscope_signals::hazard::Kind;

use super::key::{Key, Nonce};
use crate::board::Coverage;

/// The first bytes, with the version, and which of the two follows.
const SUBSCRIPTION: &[u8; 4] = b"TSH1";
const REPORT: &[u8; 4] = b"TSh1";
/// The most replicas of one subscription.
const MOST: usize = tailscope_kernel::hazard::SLOTS as usize;
/// Longer datagrams are neither sent nor read whole.
pub(super) const LONGEST: usize = 4096;
/// In place of a coverage: the replica's processes are still searched for.
const SEARCHED_FOR: u8 = 0xff;
/// The order of coverages in a report.
const COVERAGES: [Coverage; 6] = [
    Coverage::None,
    Coverage::Polled,
    Coverage::PolledHsperf,
    Coverage::Kernel,
    Coverage::KernelHsperf,
    Coverage::Jvm,
];

/// A guard asks for the hazards of these replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subscription {
    /// The report repeats it.
    pub nonce: Nonce,
    /// From the last report; zeros: there was none.
    pub cookie: Nonce,
    /// Grows with each subscription of a guard.
    pub sequence: u64,
    pub replicas: Vec<SocketAddr>,
}

/// A publisher says what it knows of the replicas that a subscription named, in that order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    /// That of the subscription.
    pub nonce: Nonce,
    /// What the next subscription has to say.
    pub cookie: Nonce,
    /// Grows with each report of a publisher.
    pub sequence: u64,
    /// Empty: the subscription lacked this cookie. `None`: its processes are still searched for.
    pub replicas: Vec<Option<State>>,
}

/// What is known of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    pub coverage: Coverage,
    /// Grows with each restart that this publisher has seen.
    pub incarnation: u32,
    /// What distinguishes its processes from later ones, for any publisher.
    pub life: u32,
    /// For each kind, in the order of [`Kind::ALL`]: for how many µs it has held; `None`: not now.
    pub hazards: [Option<u32>; Kind::ALL.len()],
}

impl State {
    /// Of a replica of which nothing is known.
    pub fn unknown() -> Self {
        Self {
            coverage: Coverage::None,
            incarnation: 0,
            life: 0,
            hazards: [None; Kind::ALL.len()],
        }
    }

    /// Whether only time has passed.
    pub fn is_like(&self, other: &Self) -> bool {
        let kinds = self.hazards.iter().zip(&other.hazards);
        self.coverage == other.coverage
            && self.incarnation == other.incarnation
            && self.life == other.life
            && kinds.fold(true, |all, (a, b)| all && a.is_some() == b.is_some())
    }
}

impl Subscription {
    pub fn encode(&self, key: &Key) -> Vec<u8> {
        let mut bytes = SUBSCRIPTION.to_vec();
        bytes.extend(self.nonce);
        bytes.extend(self.cookie);
        bytes.extend(self.sequence.to_le_bytes());
        bytes.push(self.replicas.len() as u8);
        for replica in &self.replicas {
            let ip = match replica.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            bytes.extend(ip.octets());
            bytes.extend(replica.port().to_le_bytes());
        }
        key.seal(bytes)
    }

    /// `None`: it is no subscription, or was made with another key.
    pub fn decode(bytes: &[u8], key: &Key) -> Option<Self> {
        let mut bytes = Reader::open(bytes, SUBSCRIPTION, key)?;
        let (nonce, cookie, sequence, count) = bytes.head()?;
        let one = |bytes: &mut Reader| {
            let ip = Ipv6Addr::from(bytes.take::<16>()?).to_canonical();
            let port = u16::from_le_bytes(bytes.take()?);
            Some(SocketAddr::new(ip, port))
        };
        let replicas = (0..count).map(|_| one(&mut bytes)).collect::<Option<_>>()?;
        bytes.ends()?;
        Some(Self {
            nonce,
            cookie,
            sequence,
            replicas,
        })
    }
}

impl Report {
    pub fn encode(&self, key: &Key) -> Vec<u8> {
        let mut bytes = REPORT.to_vec();
        bytes.extend(self.nonce);
        bytes.extend(self.cookie);
        bytes.extend(self.sequence.to_le_bytes());
        bytes.push(self.replicas.len() as u8);
        for state in &self.replicas {
            let Some(state) = state else {
                bytes.push(SEARCHED_FOR);
                continue;
            };
            let place = COVERAGES.iter().position(|one| *one == state.coverage);
            bytes.push(place.unwrap_or_default() as u8);
            bytes.extend(state.incarnation.to_le_bytes());
            bytes.extend(state.life.to_le_bytes());
            let holds = state.hazards.iter().enumerate();
            let mask = holds.fold(0u8, |mask, (at, age)| mask | u8::from(age.is_some()) << at);
            bytes.push(mask);
            for age in state.hazards.iter().flatten() {
                bytes.extend(age.to_le_bytes());
            }
        }
        key.seal(bytes)
    }

    /// `None`: it is no report, or was made with another key.
    pub fn decode(bytes: &[u8], key: &Key) -> Option<Self> {
        let mut bytes = Reader::open(bytes, REPORT, key)?;
        let (nonce, cookie, sequence, count) = bytes.head()?;
        let replicas = (0..count).map(|_| bytes.state()).collect::<Option<_>>()?;
        bytes.ends()?;
        Some(Self {
            nonce,
            cookie,
            sequence,
            replicas,
        })
    }
}

/// Bytes that are still to be read.
struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    /// What follows the first bytes, if somebody with the key has written it. Those are looked at first:
    /// to authenticate costs more.
    fn open(bytes: &'b [u8], magic: &[u8; 4], key: &Key) -> Option<Self> {
        bytes.starts_with(magic).then_some(())?;
        Some(Self(key.open(bytes)?.get(magic.len()..)?))
    }

    /// What both kinds begin with: nonce, cookie, sequence, and the count of replicas.
    fn head(&mut self) -> Option<(Nonce, Nonce, u64, usize)> {
        let (nonce, cookie) = (self.take()?, self.take()?);
        let sequence = u64::from_le_bytes(self.take()?);
        let [count] = self.take()?;
        let count = usize::from(count);
        (count <= MOST).then_some((nonce, cookie, sequence, count))
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, left) = self.0.split_first_chunk::<N>()?;
        self.0 = left;
        Some(*taken)
    }

    fn state(&mut self) -> Option<Option<State>> {
        let [coverage] = self.take()?;
        if coverage == SEARCHED_FOR {
            return Some(None);
        }
        let coverage = *COVERAGES.get(usize::from(coverage))?;
        let incarnation = u32::from_le_bytes(self.take()?);
        let life = u32::from_le_bytes(self.take()?);
        let [mask] = self.take()?;
        let mut hazards = [None; Kind::ALL.len()];
        if mask >> hazards.len() != 0 {
            return None;
        }
        for (at, age) in hazards.iter_mut().enumerate() {
            if mask & 1 << at != 0 {
                *age = Some(u32::from_le_bytes(self.take()?));
            }
        }
        Some(Some(State {
            coverage,
            incarnation,
            life,
            hazards,
        }))
    }

    fn ends(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Reads foreign bytes as both kinds, as if they were authentic. What can be read is written as the
/// same bytes.
///
/// # Panics
/// If it is not.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(bytes: &[u8]) {
    let key = Key::of(b"0123456789abcdef");
    for magic in [SUBSCRIPTION, REPORT] {
        let mut whole = magic.to_vec();
        whole.extend(bytes);
        let sealed = key.seal(whole);
        if let Some(read) = Subscription::decode(&sealed, &key) {
            let again = Subscription::decode(&read.encode(&key), &key);
            assert_eq!(again, Some(read));
        }
        if let Some(read) = Report::decode(&sealed, &key) {
            assert_eq!(read.encode(&key), sealed);
        }
        assert_eq!(Report::decode(bytes, &key), None);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn state() -> impl Strategy<Value = State> {
        let hazards = any::<[Option<u32>; Kind::ALL.len()]>();
        (0..COVERAGES.len(), any::<u32>(), any::<u32>(), hazards).prop_map(
            |(at, incarnation, life, hazards)| State {
                coverage: COVERAGES[at],
                incarnation,
                life,
                hazards,
            },
        )
    }

    proptest! {
        #[test]
        fn a_report_is_read_as_it_was_written(
            nonce: Nonce,
            cookie: Nonce,
            sequence: u64,
            replicas in proptest::collection::vec(proptest::option::of(state()), 0..=MOST),
        ) {
            let key = Key::of(b"0123456789abcdef");
            let report = Report { nonce, cookie, sequence, replicas };
            let bytes = report.encode(&key);
            prop_assert_eq!(Report::decode(&bytes, &key), Some(report));
            prop_assert_eq!(Report::decode(&bytes, &Key::of(b"another")), None);
            prop_assert_eq!(Subscription::decode(&bytes, &key), None);
        }

        #[test]
        fn a_subscription_is_read_as_it_was_written(
            nonce: Nonce,
            cookie: Nonce,
            sequence: u64,
            replicas in proptest::collection::vec(any::<SocketAddr>(), 0..=MOST),
        ) {
            let key = Key::of(b"0123456789abcdef");
            let plain = |one: SocketAddr| SocketAddr::new(one.ip().to_canonical(), one.port());
            let replicas: Vec<SocketAddr> = replicas.into_iter().map(plain).collect();
            let asked = Subscription { nonce, cookie, sequence, replicas };
            let bytes = asked.encode(&key);
            prop_assert!(bytes.len() <= LONGEST);
            prop_assert_eq!(Subscription::decode(&bytes, &key), Some(asked));
        }

        #[test]
        fn foreign_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            fuzz(&bytes);
        }
    }

    #[test]
    fn the_longest_report_fits() {
        let state = State {
            coverage: Coverage::Jvm,
            incarnation: 7,
            life: 8,
            hazards: [Some(1); Kind::ALL.len()],
        };
        let report = Report {
            nonce: Nonce::default(),
            cookie: Nonce::default(),
            sequence: 1,
            replicas: vec![Some(state); MOST],
        };
        assert!(report.encode(&Key::of(b"0123456789abcdef")).len() <= LONGEST);
    }
}
