//! Wakes an epoll at a time given to the nanosecond.
//!
//! Not epoll's own timeout: that comes late by the thread's timer slack and by 0.1 % of its length,
//! and in whole milliseconds before Linux 5.11. A timerfd has neither.

use anyhow::Context;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::clock::Nanos;

/// A timer among the files of an epoll.
pub struct Alarm {
    timer: OwnedFd,
    set: Nanos,
}

impl Alarm {
    /// Events of the alarm carry `data`. There is nothing to do for them: setting it anew is enough.
    pub fn within(epoll: &OwnedFd, data: epoll::EventData) -> anyhow::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)
            .context("timerfd_create")?;
        epoll::add(epoll, &timer, data, epoll::EventFlags::IN).context("can't watch a timer")?;
        Ok(Self {
            timer,
            set: Nanos(0),
        })
    }

    /// Fires once at `time`. Costs a system call only where that is news.
    pub fn set(&mut self, time: Nanos) -> anyhow::Result<()> {
        if time == self.set {
            return Ok(());
        }
        self.set = time;
        let once = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: Timespec {
                tv_sec: (time.0 / 1_000_000_000) as i64,
                tv_nsec: (time.0 % 1_000_000_000) as i64,
            },
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)
            .context("timerfd_settime")?;
        Ok(())
    }
}
