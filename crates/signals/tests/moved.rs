//! Pages of a running program are moved and put back, and it can't tell (`tests/c/moving.c`).

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tailscope_signals::moved::{MovedPage, Unmoved};
use tailscope_signals::remote::Remote;

/// The program, compiled, and what it told.
struct Moving {
    child: Child,
    page: u64,
    _folder: tempfile::TempDir,
}

impl Moving {
    fn start(threads: u32) -> Self {
        Self::start_with(&[&threads.to_string()])
    }

    fn start_with(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("moving");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/c/moving.c");
        let built = Command::new("cc")
            .args(["-O2", "-Wall", "-Werror", "-pthread", "-o"])
            .args([&program, &source])
            .status();
        assert!(built.expect("a C compiler").success());
        let mut child = Command::new(&program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("piped");
        BufReader::with_capacity(1, out)
            .read_line(&mut line)
            .expect("it says where its page is");
        let page = u64::from_str_radix(line.trim(), 16).expect("an address");
        Self {
            child,
            page,
            _folder: folder,
        }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn mapped(&self) -> Vec<String> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid())).expect("it lives");
        maps.lines().map(str::to_owned).collect()
    }

    /// Moves its page. On a machine with much else to do its threads may be slow to stop: again then.
    fn take(&self) -> MovedPage {
        for _ in 0..100 {
            match MovedPage::take(self.pid(), self.page + 8) {
                Err(Unmoved::InVain { .. }) => {}
                done => return done.expect("moved"),
            }
        }
        panic!("its threads never stopped in time");
    }

    /// What it found wrong at its end: nothing, or the test fails.
    fn end(&mut self) -> String {
        drop(self.child.stdin.take());
        let mut told = String::new();
        let mut out = self.child.stdout.take().expect("piped");
        out.read_to_string(&mut told).expect("text");
        assert!(self.child.wait().expect("ours").success(), "{told}");
        told
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        // After its end, that is no news.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn may_trace() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: moving a page wants root");
    }
    root
}

#[test]
fn nothing_is_lost_over_a_hundred_moves_there_and_back() {
    if !may_trace() {
        return;
    }
    for threads in [1, 4, 48] {
        let mut moving = Moving::start(threads);
        let remote = Remote::open(moving.pid(), moving.page, 8).expect("it lives");
        let mut stood: Vec<Duration> = Vec::new();
        for _ in 0..100 {
            let before = moving.mapped();
            let moved = moving.take();
            assert_eq!(moved.address(), moving.page);
            let word = moved.view().word(0, 8).expect("inside");
            let (first, between, last) = (word.load(), remote.read(), word.load());
            let between = between.expect("it lives");
            assert!((first..=last).contains(&between), "the same memory");
            let (back, forked) = moved.put_back().expect("back").expect("for the first time");
            assert!(forked.is_empty() && moved.put_back().expect("was").is_none());
            stood.extend(moved.stood().into_iter().chain([back]));
            assert_eq!(moving.mapped(), before, "all is mapped as it was");
        }
        stood.sort_unstable();
        println!(
            "{threads} threads and 6 more: stood still for {:?}, at most {:?}; {}",
            stood[stood.len() / 2],
            stood[stood.len() - 1],
            moving.end().trim()
        );
    }
}

#[test]
fn threads_that_are_made_meanwhile_are_stopped_too_and_take_their_turns() {
    if !may_trace() {
        return;
    }
    let mut moving = Moving::start_with(&["2", "makes"]);
    for _ in 0..200 {
        moving.take().put_back().expect("back");
    }
    println!("{}", moving.end().trim());
}

#[test]
fn a_page_that_was_left_moved_is_found_and_put_back() {
    if !may_trace() {
        return;
    }
    let mut moving = Moving::start(2);
    let moved = moving.take();
    let name = |mapped: Vec<String>| {
        let mut lines = mapped.into_iter();
        let line = lines.find(|line| line.contains("/memfd:tailscope-moved"));
        line.map(|line| line[line.find("/memfd").expect("there")..].to_owned())
    };
    let told = name(moving.mapped()).expect("it is mapped");
    let found = |name: &str| MovedPage::found(moving.pid(), moving.page, name);
    assert!(matches!(found(&told), Err(Unmoved::Taken)));
    assert!(matches!(found("/memfd:other"), Ok(None)));
    // As if its observer had been killed: the file is unlocked, and nothing else happens.
    moved.abandon();
    let found = found(&told).expect("nobody has it").expect("it is");
    let word = found.view().word(0, 8).expect("inside");
    let first = word.load();
    while word.load() == first {}
    drop(found);
    assert_eq!(name(moving.mapped()), None);
    moving.end();
}

#[test]
fn what_would_be_unsafe_is_refused_and_changes_nothing() {
    if !may_trace() {
        return;
    }
    let mut moving = Moving::start(1);
    let before = moving.mapped();
    let at = |mode: &str, path: &str| {
        let line = before
            .iter()
            .find(|l| l.contains(mode) && l.ends_with(path));
        let start = line
            .and_then(|line| line.split_once('-'))
            .expect("it has one")
            .0;
        u64::from_str_radix(start, 16).expect("an address")
    };
    let refused = |address: u64| match MovedPage::take(moving.pid(), address) {
        Err(Unmoved::Mapping(why)) => why,
        other => panic!("refused, but {other:?}"),
    };
    assert!(refused(at("r-xp", "/moving")).contains("r-xp"));
    assert!(refused(at("rw-p", "[stack]")).contains("stack"));
    assert!(refused(8).contains("not mapped"));
    let own = moving.pid() as libc::pid_t;
    let stop = |signal| {
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(own).expect("a process"),
            signal,
        )
        .expect("ours")
    };
    stop(rustix::process::Signal::STOP);
    while !fs::read_to_string(format!("/proc/{own}/status"))
        .expect("it lives")
        .contains("T (stopped)")
    {}
    assert!(matches!(
        MovedPage::take(moving.pid(), moving.page),
        Err(Unmoved::Stopped)
    ));
    stop(rustix::process::Signal::CONT);
    assert_eq!(moving.mapped(), before);
    moving.end();
    assert!(matches!(
        MovedPage::take(u32::MAX >> 1, 4096),
        Err(Unmoved::Gone)
    ));
}
