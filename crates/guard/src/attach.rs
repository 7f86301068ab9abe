//! Asks a JVM to collect its garbage, as `jcmd PID GC.run` does.
//!
//! A JVM listens on the socket `.java_pidN` in its own `/tmp`. It makes that socket when it gets a
//! SIGQUIT while a file `.attach_pidN` is there. A program that does not handle SIGQUIT would end, so
//! it is only sent to one that does.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How long a JVM may take to make its socket.
const SOCKET: Duration = Duration::from_secs(3);
/// Between two looks for it.
const LOOK: Duration = Duration::from_millis(10);
/// How long it may collect.
const COLLECTS: Duration = Duration::from_secs(60);
/// Version 1 of the protocol, the command, and its three arguments.
const REQUEST: &[u8] = b"1\0jcmd\0GC.run\0\0\0";
/// The longest answer that is read: a number and a sentence.
const MOST_ANSWER: u64 = 4096;

/// Has the JVM of a process collect, and returns when it has.
///
/// # Errors
/// Why it can't be asked, in words.
pub fn collect(pid: u32) -> Result<(), String> {
    let mut stream = connect(pid)?;
    let words = |e: std::io::Error| e.to_string();
    stream.set_write_timeout(Some(SOCKET)).map_err(words)?;
    stream.set_read_timeout(Some(COLLECTS)).map_err(words)?;
    stream.write_all(REQUEST).map_err(words)?;
    let mut answer = Vec::new();
    stream
        .take(MOST_ANSWER)
        .read_to_end(&mut answer)
        .map_err(words)?;
    let answer = String::from_utf8_lossy(&answer);
    match answer.split_once('\n') {
        Some(("0", _)) => Ok(()),
        _ => Err(format!("it refuses: {}", answer.trim())),
    }
}

fn connect(pid: u32) -> Result<UnixStream, String> {
    let gone = || "it has ended".to_owned();
    // From here on, the number can't come to mean another process.
    let handle = Pid::from_raw(pid.cast_signed()).ok_or_else(gone)?;
    let handle = pidfd_open(handle, PidfdFlags::empty()).map_err(|_| gone())?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(|_| gone())?;
    let about = Status::parse(&status).ok_or("its /proc/PID/status can't be read")?;
    let folder = PathBuf::from(format!("/proc/{pid}/root/tmp"));
    let socket = folder.join(format!(".java_pid{}", about.inner_pid));
    if let Some(stream) = try_connect(&socket, pid)? {
        return Ok(stream);
    }
    if !about.handles_quit {
        return Err("it does not handle SIGQUIT (-Xrs), so it can't be asked".into());
    }
    let trigger = folder.join(format!(".attach_pid{}", about.inner_pid));
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&trigger);
    match made {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => {
            return Err(format!("can't make {}: {e}", trigger.display()));
        }
        _ => {}
    }
    let asked = pidfd_send_signal(&handle, Signal::QUIT)
        .map_err(|e| format!("can't send it SIGQUIT: {e}"))
        .and_then(|()| wait_for(&socket, pid));
    let _ = fs::remove_file(&trigger);
    asked
}

fn wait_for(socket: &Path, pid: u32) -> Result<UnixStream, String> {
    let until = Instant::now() + SOCKET;
    while Instant::now() < until {
        if let Some(stream) = try_connect(socket, pid)? {
            return Ok(stream);
        }
        std::thread::sleep(LOOK);
    }
    Err("it did not answer SIGQUIT (-XX:+DisableAttachMechanism?)".into())
}

/// The process's own socket. `None`: it has none.
fn try_connect(socket: &Path, pid: u32) -> Result<Option<UnixStream>, String> {
    let stream = match UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(e) => return Err(format!("can't connect to {}: {e}", socket.display())),
    };
    // Anybody may make a file in /tmp.
    let peer = socket_peercred(&stream).map_err(|e| e.to_string())?;
    if peer.pid.as_raw_nonzero().get().cast_unsigned() != pid {
        return Err(format!("{} is another process's", socket.display()));
    }
    Ok(Some(stream))
}

/// What `/proc/PID/status` says.
#[derive(Debug, PartialEq, Eq)]
struct Status {
    /// Its number in its own PID namespace.
    inner_pid: u32,
    handles_quit: bool,
}

impl Status {
    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        };
        let caught = u64::from_str_radix(field("SigCgt")?.trim(), 16).ok()?;
        let quit = Signal::QUIT.as_raw() - 1;
        Some(Self {
            inner_pid: field("NStgid")?.split_whitespace().last()?.parse().ok()?,
            handles_quit: caught & 1 << quit != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_number_in_the_namespace_and_the_signals_are_read() {
        let text = "Name:\tjava\nNStgid:\t4711\t7\nSigCgt:\t0000000181005ccf\n";
        let right = Status {
            inner_pid: 7,
            handles_quit: true,
        };
        assert_eq!(Status::parse(text), Some(right));
        assert!(
            !Status::parse(&text.replace("5ccf", "5ccb"))
                .expect("right")
                .handles_quit
        );
        assert_eq!(Status::parse("Name:\tjava\n"), None);
    }

    #[test]
    fn a_program_that_sigquit_would_end_is_left_alone() {
        let mut sleeps = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::null())
            .spawn()
            .expect("it starts");
        let why = collect(sleeps.id()).expect_err("it is no JVM");
        assert!(why.contains("SIGQUIT"), "{why}");
        assert!(sleeps.try_wait().expect("ours").is_none(), "it runs on");
        sleeps.kill().expect("ours");
        sleeps.wait().expect("it ends");
    }
}
