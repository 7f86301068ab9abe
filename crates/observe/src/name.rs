//! The names of signals, as a person types them.

use std::fmt;
use std::str::FromStr;

use tailscope_symbols::nearest::nearest;
use tailscope_trace::Cause;

/// Which signal is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// `channel:PID:NAME`: a channel that the process made with the SDK.
    Channel {
        /// The process.
        pid: u32,
        /// The channel.
        name: String,
    },
    /// `hsperf:PID:NAME`: a counter that HotSpot keeps in shared memory for every JVM.
    Hsperf {
        /// The JVM.
        pid: u32,
        /// The counter, like `sun.gc.collector.0.invocations`.
        name: String,
    },
    /// `meter:PID:CAUSE` or `meter:PID/TID:CAUSE`: the time that a thread lost to a cause, in ns.
    Meter {
        /// The process.
        pid: u32,
        /// Its thread; the first one has the process's number.
        tid: u32,
        /// As in the ledger.
        cause: Cause,
    },
    /// `counter:PID:EVENT` or `counter:PID/TID:EVENT`: a hardware event of a thread.
    Counter {
        /// The process.
        pid: u32,
        /// Its thread; the first one has the process's number.
        tid: u32,
        /// As perf has it: `instructions`, `r01c2`, `cpu/event=0xc2/`.
        event: String,
    },
    /// `running:CPU`: the thread that runs on a CPU.
    Running {
        /// The CPU.
        cpu: u32,
    },
    /// `mem:PID:SYMBOL`: a global variable of an unmodified process.
    Mem {
        /// The process.
        pid: u32,
        /// The variable, with what is added to its address: `table+8`.
        symbol: String,
        /// Bytes beyond the symbol.
        offset: u64,
    },
}

impl Name {
    /// Why its rate by this tag would say nothing, if it would.
    #[must_use]
    pub fn without_rate_by(&self, tag: &Self) -> Option<String> {
        let (Self::Meter { cause, .. }, Self::Running { .. }) = (self, tag) else {
            return None;
        };
        // These are charged while the thread that they strike has the CPU.
        let struck = matches!(
            cause,
            Cause::Irq
                | Cause::SoftirqNet
                | Cause::SoftirqTimer
                | Cause::SoftirqOther
                | Cause::Fault
        );
        (!struck).then(|| {
            format!(
                "{self} has no rate by {tag}: the kernel charges a whole wait when it ends, to the thread \
                 that then has the CPU; leave the tag out, or see who had the CPU with tailscope \
                 record -p PID and tailscope explain"
            )
        })
    }
}

/// What was typed names no signal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// No such kind.
    #[error("'{kind}' is not a kind of signal{}: {KINDS}", suggestion(.near))]
    Kind {
        /// What was typed before the colon.
        kind: String,
        /// Kinds like it.
        near: Vec<String>,
    },
    /// Not enough parts, or an empty one.
    #[error("'{text}' is incomplete: {form}")]
    Incomplete {
        /// What was typed.
        text: String,
        /// How it is typed.
        form: &'static str,
    },
    /// A process is a number.
    #[error("'{0}' is not a process id; write a number, as `pidof -s NAME` prints")]
    Pid(String),
    /// A CPU is a number.
    #[error("'{0}' is not a CPU; write its number")]
    Cpu(String),
    /// There is no such cause.
    #[error("'{cause}' is not a cause{}; write a cause of the ledger, such as runqueue or fault", suggestion(.near))]
    Cause {
        /// What was typed.
        cause: String,
        /// Causes like it.
        near: Vec<String>,
    },
    /// An offset is a number.
    #[error("'{0}' is not a number of bytes after the symbol; write SYMBOL+8")]
    Offset(String),
    /// The page of a variable was to be moved to memory that the observer shares.
    #[error(
        "can't read '{0}:moved': observe does not move pages of another process; use '{0}', which a \
         system call reads"
    )]
    Moved(String),
}

const KINDS: &str = "there are channel:PID:NAME, hsperf:PID:NAME, mem:PID:SYMBOL, \
                     counter:PID:EVENT, meter:PID:CAUSE, running:CPU";

fn suggestion(near: &[String]) -> String {
    match near {
        [] => String::new(),
        near => format!(" (did you mean {}?)", near.join(", ")),
    }
}

fn form(kind: &str) -> Option<&'static str> {
    match kind {
        "channel" => Some("channel:PID:NAME, a channel of the SDK"),
        "hsperf" => {
            Some("hsperf:PID:NAME, a counter of a JVM, such as sun.gc.collector.0.invocations")
        }
        "mem" => Some("mem:PID:SYMBOL, a global variable; SYMBOL+8 is eight bytes further on"),
        "meter" => Some(
            "meter:PID:CAUSE or meter:PID/TID:CAUSE, the time in ns that a thread lost to a cause",
        ),
        "counter" => Some(
            "counter:PID:EVENT or counter:PID/TID:EVENT, a hardware event of a thread, such as instructions",
        ),
        "running" => Some("running:CPU, the thread that runs on this CPU"),
        _ => None,
    }
}

/// `PID`, which is its first thread, or `PID/TID`.
fn thread(text: &str) -> Result<(u32, u32), NameError> {
    let (pid, tid) = text.split_once('/').unwrap_or((text, text));
    let number = |text: &str| text.parse().map_err(|_| NameError::Pid(text.to_owned()));
    Ok((number(pid)?, number(tid)?))
}

/// A thread, and what it lost time to.
fn meter(pid: u32, tid: u32, cause: &str) -> Result<Name, NameError> {
    let known = Cause::from_name(cause).ok_or_else(|| NameError::Cause {
        cause: cause.to_owned(),
        near: nearest(cause, Cause::ALL.map(Cause::name))
            .into_iter()
            .map(str::to_owned)
            .collect(),
    })?;
    Ok(Name::Meter {
        pid,
        tid,
        cause: known,
    })
}

impl Name {
    /// The process that it is of; `None`: it is of the machine.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::Channel { pid, .. }
            | Self::Hsperf { pid, .. }
            | Self::Meter { pid, .. }
            | Self::Counter { pid, .. }
            | Self::Mem { pid, .. } => Some(*pid),
            Self::Running { .. } => None,
        }
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let Some(form) = form(kind) else {
            let kinds = ["channel", "counter", "hsperf", "mem", "meter", "running"];
            let near = nearest(kind, kinds);
            return Err(NameError::Kind {
                kind: kind.to_owned(),
                near: near.into_iter().map(str::to_owned).collect(),
            });
        };
        if kind == "running" && !rest.is_empty() {
            let cpu = rest.parse().map_err(|_| NameError::Cpu(rest.to_owned()))?;
            return Ok(Self::Running { cpu });
        }
        let (pid, name) = rest.split_once(':').unwrap_or((rest, ""));
        if pid.is_empty() || name.is_empty() {
            return Err(NameError::Incomplete {
                text: text.to_owned(),
                form,
            });
        }
        if kind == "meter" {
            let (pid, tid) = thread(pid)?;
            return meter(pid, tid, name);
        }
        if kind == "counter" {
            let (pid, tid) = thread(pid)?;
            let event = name.to_owned();
            return Ok(Self::Counter { pid, tid, event });
        }
        let name = name.to_owned();
        let pid = pid.parse().map_err(|_| NameError::Pid(pid.to_owned()))?;
        Ok(match kind {
            "channel" => Self::Channel { pid, name },
            "hsperf" => Self::Hsperf { pid, name },
            _ => {
                if let Some(name) = name.strip_suffix(":moved") {
                    return Err(NameError::Moved(format!("mem:{pid}:{name}")));
                }
                let (symbol, offset) = match name.rsplit_once('+') {
                    Some((symbol, offset)) => (
                        symbol.to_owned(),
                        number(offset).ok_or_else(|| NameError::Offset(offset.to_owned()))?,
                    ),
                    None => (name, 0),
                };
                Self::Mem {
                    pid,
                    symbol,
                    offset,
                }
            }
        })
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Channel { pid, name } => write!(f, "channel:{pid}:{name}"),
            Self::Hsperf { pid, name } => write!(f, "hsperf:{pid}:{name}"),
            Self::Meter { pid, tid, cause } if pid == tid => write!(f, "meter:{pid}:{cause}"),
            Self::Meter { pid, tid, cause } => write!(f, "meter:{pid}/{tid}:{cause}"),
            Self::Counter { pid, tid, event } if pid == tid => write!(f, "counter:{pid}:{event}"),
            Self::Counter { pid, tid, event } => write!(f, "counter:{pid}/{tid}:{event}"),
            Self::Running { cpu } => write!(f, "running:{cpu}"),
            Self::Mem {
                pid,
                symbol,
                offset,
            } => {
                write!(f, "mem:{pid}:{symbol}")?;
                if *offset > 0 {
                    write!(f, "+{offset}")?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn names_come_back_as_they_went(
            pid: u32, name in "[a-z_][a-z_.0-9]{0,20}", offset in 0u64..10_000, kind in 0..6,
            cause in 0usize..Cause::COUNT, tid: u32,
        ) {
            let name = match kind {
                0 => Name::Channel { pid, name },
                1 => Name::Hsperf { pid, name },
                2 => Name::Meter { pid, tid, cause: Cause::ALL[cause] },
                3 => Name::Running { cpu: pid },
                4 => Name::Counter { pid, tid, event: name },
                _ => Name::Mem { pid, symbol: name, offset },
            };
            prop_assert_eq!(name.to_string().parse(), Ok(name));
        }

        #[test]
        fn whatever_is_typed_is_answered(text: String) {
            let _ = text.parse::<Name>();
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |text: &str| text.parse::<Name>().expect_err("wrong").to_string();
        assert!(
            error("chanel:1:x").contains("did you mean channel?"),
            "{}",
            error("chanel:1:x")
        );
        assert!(error("mem:17").contains("mem:PID:SYMBOL"));
        assert!(error("mem:x:y").contains("not a process id"));
        assert!(error("mem:1:y+z").contains("not a number of bytes"));
        let moved = error("mem:1:y+8:moved");
        assert!(moved.contains("use 'mem:1:y+8'"), "{moved}");
        assert!(error("core:0:cycles").contains("counter:PID:EVENT"));
        assert!(error("meter:1:runque").contains("did you mean runqueue"));
        assert!(error("meter:1/x:io").contains("not a process id"));
        assert!(error("counter:1").contains("counter:PID:EVENT"));
        assert!(error("counter:1/x:cycles").contains("not a process id"));
        assert!(error("running:one").contains("not a CPU"));
        assert!(error("running:").contains("running:CPU"));
        assert!(error("").contains("there are channel:PID:NAME"));
    }
}
