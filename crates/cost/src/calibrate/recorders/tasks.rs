//! What a recorded process does while it is timed.

use std::hint::black_box;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Instant;

use tailscope_kernel::cost::Call;
use tailscope_sdk::Span;

use super::PROBED;
use crate::calibrate::work::{Partner, Work, timed};

/// What it can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Task {
    /// Two threads that wake each other; a time is one switch.
    Switches,
    /// A request that comes by a loopback connection, and its answer.
    Requests,
    /// The same with caches that hold something else.
    ColdRequests,
    /// The switches with caches that hold something else.
    ColdSwitches,
    /// A datagram that nobody reads: one softirq.
    Datagrams,
    /// The same with caches that hold something else.
    ColdDatagrams,
    /// A fresh page is touched.
    Faults,
    /// A call of the function that is probed.
    Calls,
    /// A span of the SDK.
    Spans,
    /// Its sockets are closed: the next task that needs some makes others.
    Reconnect,
}

impl Task {
    const ALL: [Self; 10] = [
        Self::Switches,
        Self::Requests,
        Self::ColdRequests,
        Self::ColdSwitches,
        Self::Datagrams,
        Self::ColdDatagrams,
        Self::Faults,
        Self::Calls,
        Self::Spans,
        Self::Reconnect,
    ];

    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|task| *task as u8 == number)
    }

    /// How often it is done in all where it is timed so often: [`Tasks::run`] warms up first.
    pub const fn repeated(times: u64) -> u64 {
        times + warm_up(times)
    }

    /// How often it is done in a phase of about half a millisecond.
    pub const fn times(self) -> u64 {
        match self {
            Self::Switches => 200,
            Self::Requests => 60,
            Self::ColdRequests | Self::ColdDatagrams => 20,
            Self::ColdSwitches => 40,
            Self::Datagrams => 200,
            Self::Faults => 400,
            Self::Calls => 300,
            Self::Spans => 4_000,
            Self::Reconnect => 1,
        }
    }
}

/// What a request and its answer are, as a server of this kind reads and writes them.
const REQUEST: &[u8] = b"get key:000042\r\n";
const ANSWER: &[u8] = b"value 0123456789abcdef\r\n";
/// Bytes that are read before each cold task: more than a CPU has cache of its own.
const COLD_BYTES: usize = 1 << 20;
/// Of this size memory comes fresh from the kernel, and goes back to it.
const FRESH_BYTES: usize = 64 << 20;
const PAGE: usize = 4096;
/// Parts of a phase.
const BATCHES: u64 = 10;
const LINE: usize = 64;

/// How often something is done before it is timed so often.
const fn warm_up(times: u64) -> u64 {
    times / 8 + 4
}

/// What the tasks need, made when it is first needed.
#[derive(Default)]
pub struct Tasks {
    partner: Option<Work>,
    connection: Option<Connection>,
    datagrams: Option<(UdpSocket, UdpSocket)>,
    cold: Vec<u8>,
    calls: Option<Call>,
}

impl Tasks {
    /// Does it a few times, and then so often. ns of all, by the median batch: an interrupt in some of
    /// them changes nothing.
    pub fn run(&mut self, task: Task, times: u64) -> io::Result<f64> {
        self.some(task, warm_up(times))?;
        let batches = BATCHES.min(times).max(1);
        let batch = |_| self.some(task, times / batches);
        let mut ns = (0..batches).map(batch).collect::<io::Result<Vec<f64>>>()?;
        ns.sort_by(f64::total_cmp);
        Ok(ns[ns.len() / 2] * times as f64 / (times / batches) as f64)
    }

    fn some(&mut self, task: Task, times: u64) -> io::Result<f64> {
        match task {
            Task::Switches => {
                if self.partner.is_none() {
                    self.partner = Some(Work::Switches(Partner::start()?));
                }
                let partner = self.partner.as_ref();
                Ok(timed(|| partner.iter().for_each(|work| work.run(times))))
            }
            Task::Requests => {
                let connection = self.connection()?;
                let begin = Instant::now();
                for _ in 0..times {
                    connection.serve_one()?;
                }
                Ok(begin.elapsed().as_nanos() as f64)
            }
            Task::ColdRequests => self.cold(Task::Requests, 1, times),
            Task::ColdDatagrams => self.cold(Task::Datagrams, 1, times),
            // There and back: on one side alone the other would be found warm.
            Task::ColdSwitches => self.cold(Task::Switches, 2, times),
            Task::Datagrams => {
                let (from, _to) = self.datagrams()?;
                let begin = Instant::now();
                for _ in 0..times {
                    from.send(REQUEST)?;
                }
                Ok(begin.elapsed().as_nanos() as f64)
            }
            Task::Faults => Ok(touch(times)),
            Task::Calls => {
                let call = *self
                    .calls
                    .get_or_insert_with(|| Call::new(PROBED.0, PROBED.1));
                Ok(timed(|| call.repeat(times)))
            }
            Task::Reconnect => {
                self.connection = None;
                self.datagrams = None;
                Ok(1.0)
            }
            Task::Spans => Ok(timed(|| {
                for _ in 0..times {
                    Span::begin("calibration").end();
                }
            })),
        }
    }

    fn connection(&mut self) -> io::Result<&mut Connection> {
        if self.connection.is_none() {
            self.connection = Some(Connection::new()?);
        }
        self.connection
            .as_mut()
            .ok_or_else(|| io::Error::other("it was just made"))
    }

    fn datagrams(&mut self) -> io::Result<&(UdpSocket, UdpSocket)> {
        if self.datagrams.is_none() {
            let (from, to) = (
                UdpSocket::bind("127.0.0.1:0")?,
                UdpSocket::bind("127.0.0.1:0")?,
            );
            from.connect(to.local_addr()?)?;
            self.datagrams = Some((from, to));
        }
        self.datagrams
            .as_ref()
            .ok_or_else(|| io::Error::other("it was just made"))
    }

    /// Does something `at_once` times after other memory was read, again and again until it was done so
    /// often.
    fn cold(&mut self, task: Task, at_once: u64, times: u64) -> io::Result<f64> {
        self.cold.resize(COLD_BYTES, 1);
        let mut ns = 0.0;
        for _ in 0..times / at_once {
            let lines = self.cold.iter().step_by(LINE);
            black_box(lines.map(|byte| u64::from(*byte)).sum::<u64>());
            ns += self.some(task, at_once)?;
        }
        Ok(ns)
    }
}

/// Both ends of a loopback connection, in one thread: nobody waits.
struct Connection {
    _listener: TcpListener,
    client: TcpStream,
    server: TcpStream,
}

impl Connection {
    fn new() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        let (server, _) = listener.accept()?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        Ok(Self {
            _listener: listener,
            client,
            server,
        })
    }

    fn serve_one(&mut self) -> io::Result<()> {
        let mut bytes = [0; 128];
        self.client.write_all(REQUEST)?;
        let _ = self.server.read(&mut bytes)?;
        self.server.write_all(ANSWER)?;
        let _ = self.client.read(&mut bytes)?;
        Ok(())
    }
}

/// Touches this number of fresh pages; returns how long that took, in ns.
fn touch(pages: u64) -> f64 {
    // One huge page would be one fault; where that can't be refused, the figure is too small.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    let mut fresh = vec![0u8; FRESH_BYTES];
    let touched = fresh.iter_mut().step_by(PAGE).take(pages as usize);
    let ns = timed(|| touched.for_each(|byte| *black_box(byte) = 1));
    black_box(&fresh);
    ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_takes_time_and_has_its_own_number() {
        let mut tasks = Tasks::default();
        for task in Task::ALL {
            assert_eq!(Task::of(task as u8), Some(task));
            let ns = tasks.run(task, 20).expect("it can be done");
            assert!(ns > 0.0 && ns.is_finite(), "{task:?}: {ns}");
        }
        assert_eq!(Task::of(200), None);
    }
}
