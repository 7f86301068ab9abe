//! The event loop: one thread, one epoll, a timer of nanoseconds.

use anyhow::Context;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use super::alarm::Alarm;
use super::arrivals::Arrivals;
use super::connection::Connection;
use super::interval::Interval;
use super::plan::{Outcome, Pace, Plan};
use super::protocol::Protocol;

use super::tally::Tally;
use crate::clock::Nanos;
use crate::random::Random;
use crate::stop::Stop;

/// Requests that wait for a connection, all together. Reaching it means that the server does less
/// than it is asked for; going on would only measure how long the run was.
const MOST_WAITING: usize = 1_000_000;

/// Requests issued before replies are looked at again, when many are due at once.
const BURST: usize = 64;

/// After the window, replies are awaited this long.
const DRAIN: Nanos = Nanos(2_000_000_000);

/// What epoll says where it means the alarm; every other number is a connection's index.
const ALARM: u64 = u64::MAX;

/// What epoll watches of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watched {
    /// Not this connection, which is new, or not there.
    Nothing,
    Replies,
    RepliesAndRoom,
}

pub struct Generator<'a> {
    plan: &'a Plan,
    protocol: &'a dyn Protocol,
    connections: Vec<Connection>,
    /// What epoll watches of each connection.
    watched: Vec<Watched>,
    epoll: OwnedFd,
    alarm: Alarm,
    events: Vec<epoll::Event>,
    random: Random,
    tally: Tally,
}

impl<'a> Generator<'a> {
    /// Connects, and lets the protocol prepare the server (fill in the keys).
    pub fn prepare(plan: &'a Plan, protocol: &'a dyn Protocol) -> anyhow::Result<Self> {
        let mut connections = Vec::with_capacity(plan.connections);
        for _ in 0..plan.connections {
            connections.push(Connection::open(plan.address, plan.depth, plan.fresh)?);
        }
        let mut requests = Vec::new();
        for step in 0.. {
            requests.clear();
            let Some(replies) = protocol.prepare(step, &mut requests) else {
                break;
            };
            connections[0].converse(&requests, replies, protocol)?;
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll_create1")?;
        if plan.fresh {
            for connection in &mut connections {
                connection.hang_up()?;
            }
        }
        let alarm = Alarm::within(&epoll, epoll::EventData::new_u64(ALARM))?;
        let mut generator = Self {
            plan,
            protocol,
            watched: vec![Watched::Nothing; connections.len()],
            connections,
            epoll,
            alarm,
            events: Vec::with_capacity(plan.connections.clamp(16, 1024)),
            random: Random::seeded(plan.seed),
            tally: Tally::of_window(Nanos(0), Nanos(0)),
        };
        for index in 0..generator.connections.len() {
            generator.watch(index)?;
        }
        Ok(generator)
    }

    /// Runs to the end of the window, or to Ctrl-C or a failure.
    pub fn run(mut self, stop: &Stop) -> Outcome {
        let start = Nanos::now();
        let begin = start + self.plan.warmup;
        self.tally = Tally::of_window(begin, begin + self.plan.duration);
        let failure = self.offer(start, stop).err();
        let interrupted = stop.interrupted();
        if failure.is_some() || interrupted {
            self.tally.end = self.tally.end.min(Nanos::now()).max(begin);
        }
        let unanswered = self.connections.iter().map(Connection::pending).sum();
        Outcome {
            tally: self.tally,
            unanswered,
            interrupted,
            failure,
        }
    }

    fn offer(&mut self, start: Nanos, stop: &Stop) -> anyhow::Result<()> {
        let mut arrivals = match self.plan.pace {
            Pace::Open { rate } => Some(Arrivals::poisson(
                start,
                rate,
                Random::seeded(self.random.next()),
            )),
            Pace::Closed => {
                self.fill_all(start)?;
                None
            }
        };
        let mut interval = self
            .plan
            .report_every
            .map(|every| Interval::begin(start, every));
        let end = self.tally.end;
        loop {
            let now = Nanos::now();
            // A generator that is behind still owes the requests that were due in the window.
            let all_issued = arrivals
                .as_ref()
                .is_none_or(|arrivals| arrivals.due() >= end);
            if (now >= end && all_issued) || stop.interrupted() {
                break;
            }
            if let Some(interval) = &mut interval {
                interval.print_when_due(now, &mut self.tally);
            }
            let mut wake = interval
                .as_ref()
                .map_or(end, |interval| interval.due.min(end));
            if let Some(arrivals) = &mut arrivals {
                self.submit_due(arrivals, now.min(end))?;
                wake = wake.min(arrivals.due());
            }
            self.await_until(wake)?;
            self.take_answers(matches!(self.plan.pace, Pace::Closed))?;
        }
        self.drain(stop)
    }

    /// Closed loop: the first requests, as many as may be under way.
    fn fill_all(&mut self, now: Nanos) -> anyhow::Result<()> {
        for i in 0..self.connections.len() {
            for _ in 0..self.plan.depth {
                self.submit(i, now)?;
            }
        }
        Ok(())
    }

    fn submit(&mut self, connection: usize, due: Nanos) -> anyhow::Result<()> {
        self.connections[connection].submit(due, self.protocol, &mut self.random)?;
        self.watch(connection)
    }

    /// Open loop: issues every request whose time has come, each to a connection drawn at random.
    fn submit_due(&mut self, arrivals: &mut Arrivals, mut now: Nanos) -> anyhow::Result<()> {
        for _ in 0..BURST {
            if arrivals.due() > now {
                break;
            }
            let due = arrivals.due();
            arrivals.advance();
            self.tally.turned_to(due, now);
            let connection = self.random.below(self.connections.len() as u64) as usize;
            self.submit(connection, due)?;
            now = Nanos::now().min(self.tally.end);
        }
        self.check_backlog()
    }

    fn check_backlog(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.connections
                .iter()
                .map(Connection::pending)
                .sum::<usize>()
                < MOST_WAITING,
            "the server answers less than the rate asked for: {MOST_WAITING} requests wait; \
             lower --rate (find the limit with --closed-loop)"
        );
        Ok(())
    }

    /// Sleeps until `wake` or until a connection has something, whichever comes first.
    fn await_until(&mut self, wake: Nanos) -> anyhow::Result<()> {
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let timeout = if self.plan.spin || wake <= Nanos::now() {
            Some(&at_once)
        } else {
            self.alarm.set(wake)?;
            None
        };
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), timeout) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("epoll_wait"),
        }
    }

    /// Reads what came, counts the answers, and issues what may go out now.
    fn take_answers(&mut self, refill: bool) -> anyhow::Result<()> {
        for at in 0..self.events.len() {
            // Copied out of the packed struct, of whose fields no reference may be taken.
            let epoll::Event { flags, data } = self.events[at];
            if data.u64() == ALARM {
                continue;
            }
            let index = data.u64() as usize;
            let connection = &mut self.connections[index];
            if flags.contains(epoll::EventFlags::OUT) {
                connection.flush()?;
            }
            if flags.intersects(!epoll::EventFlags::OUT) {
                connection.receive()?;
                let now = Nanos::now();
                let mut answered = 0;
                while let Some(answer) = connection.next_answer(self.protocol)? {
                    answered += 1;
                    let verdict = answer.reply.verdict;
                    self.tally
                        .answered(answer.request, answer.received, now, verdict);
                    if connection.over_after(&answer.reply) {
                        self.hang_up(index)?;
                        break;
                    }
                }
                let connection = &mut self.connections[index];
                connection.issue_waiting(self.protocol, &mut self.random)?;
                if refill {
                    for _ in 0..answered {
                        self.submit(index, now)?;
                    }
                }
            }
            self.watch(index)?;
        }
        Ok(())
    }

    fn hang_up(&mut self, index: usize) -> anyhow::Result<()> {
        self.tally.reconnects += u64::from(!self.plan.fresh);
        // Closing the old socket takes it out of epoll.
        self.watched[index] = Watched::Nothing;
        self.connections[index].hang_up()
    }

    /// Has epoll watch a connection, for room to write exactly while some is needed.
    fn watch(&mut self, index: usize) -> anyhow::Result<()> {
        let connection = &self.connections[index];
        let Some(stream) = connection.stream() else {
            return Ok(());
        };
        let wanted = if connection.blocked() {
            Watched::RepliesAndRoom
        } else {
            Watched::Replies
        };
        let is = std::mem::replace(&mut self.watched[index], wanted);
        let mut flags = epoll::EventFlags::IN;
        flags.set(epoll::EventFlags::OUT, wanted == Watched::RepliesAndRoom);
        let data = epoll::EventData::new_u64(index as u64);
        match is {
            Watched::Nothing => epoll::add(&self.epoll, stream, data, flags),
            _ if is != wanted => epoll::modify(&self.epoll, stream, data, flags),
            _ => return Ok(()),
        }
        .context("can't watch a connection")
    }

    fn drain(&mut self, stop: &Stop) -> anyhow::Result<()> {
        let deadline = Nanos::now() + DRAIN;
        while self
            .connections
            .iter()
            .any(|connection| connection.pending() > 0)
        {
            if Nanos::now() >= deadline || stop.interrupted() {
                break;
            }
            self.await_until(deadline)?;
            self.take_answers(false)?;
        }
        Ok(())
    }
}
