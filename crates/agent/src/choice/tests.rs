//! Rules and the processes that they fit; attacks are run as a user without rights.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use super::*;

#[test]
fn a_rule_fits_a_process_that_is_all_that_it_says() {
    let me = Facts::of(std::process::id());
    let exe = std::env::current_exe().ok();
    let name = me.name().map(str::to_owned);
    let by_name = Rule {
        name,
        ..Rule::default()
    };
    assert!(by_name.fits(&me));
    let by_both = Rule {
        exe: exe.clone(),
        ..by_name.clone()
    };
    assert!(by_both.fits(&me));
    let other = Rule {
        exe: Some("/bin/false".into()),
        ..by_name
    };
    assert!(!other.fits(&me));
    assert!(!by_both.fits(&Facts::of(u32::MAX)));
}

#[test]
fn a_program_is_known_through_links_and_when_another_has_taken_its_place() {
    let home = tempfile::tempdir().expect("a folder");
    let [program, link, other] = ["program", "link", "other"].map(|name| home.path().join(name));
    fs::copy("/bin/sleep", &program).expect("copied");
    fs::copy("/bin/sleep", &other).expect("copied");
    std::os::unix::fs::symlink(&program, &link).expect("linked");
    let mut sleeping = Command::new(&program).arg("60").spawn().expect("it starts");
    let facts = || Facts::of(sleeping.id());
    let by = |exe: &Path| Rule {
        exe: Some(exe.to_owned()),
        ..Rule::default()
    };
    let seen = [&program, &link, &other].map(|exe| by(exe).fits(&facts()));
    fs::rename(&other, &program).expect("replaced");
    let replaced = by(&program).fits(&facts());
    sleeping.kill().expect("it runs");
    sleeping.wait().expect("it ends");
    assert_eq!((seen, replaced), ([true, true, false], true));
}

/// A process that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// A user without rights runs this; `None` where there is no such thing here.
    fn as_nobody(command: &str) -> Option<Self> {
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        let child = setpriv.args(["sh", "-c", command]).spawn().ok()?;
        Some(Self(child))
    }

    /// Waits until its program has this path, with what the kernel says behind it.
    fn runs(&mut self, path: &str) -> bool {
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            let shown = fs::read_link(format!("/proc/{}/exe", self.0.id()));
            if shown.is_ok_and(|shown| shown == Path::new(path)) {
                return true;
            }
            if !matches!(self.0.try_wait(), Ok(None)) {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
        false
    }

    fn facts(&self) -> Facts {
        Facts::of(self.0.id())
    }
}

fn by_exe(exe: &Path) -> Rule {
    Rule {
        exe: Some(exe.to_owned()),
        ..Rule::default()
    }
}

/// A program that root keeps, and one of nobody's own, in a folder that everybody may look into.
fn programs(home: &Path) -> [PathBuf; 2] {
    fs::set_permissions(home, Permissions::from_mode(0o755)).expect("ours");
    let [program, forged] = ["program", "forged"].map(|name| home.join(name));
    for path in [&program, &forged] {
        fs::copy("/bin/sleep", path).expect("copied");
    }
    chown(&forged, Some(65534), Some(65534)).expect("root may");
    [program, forged]
}

#[test]
fn a_mount_over_a_program_does_not_make_it_another() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: nobody's processes are looked at by root");
        return;
    }
    let home = tempfile::tempdir().expect("a folder");
    let [program, forged] = programs(home.path());
    let (at, over) = (program.display(), forged.display());
    let mount = format!("mount --bind {over} {at} && exec {at} 60");
    let Some(mut mounted) = Running::as_nobody(&format!("exec unshare -Urm sh -c '{mount}'"))
    else {
        println!("skipped: setpriv is not here");
        return;
    };
    if !mounted.runs(&at.to_string()) {
        println!("skipped: users may not mount here");
        return;
    }
    let rule = by_exe(&program);
    assert!(!rule.fits(&mounted.facts()));
    // The same program, in the host's namespaces, through the other's root.
    let there = format!("exec /proc/{}/root{at} 60", mounted.0.id());
    let mut through = Running::as_nobody(&there).expect("as before");
    assert!(through.runs(&at.to_string()));
    assert!(!rule.fits(&through.facts()));
    // And as if the real one had been replaced.
    fs::remove_file(&forged).expect("removed");
    for process in [&mut mounted, &mut through] {
        assert!(process.runs(&format!("{at} (deleted)")));
        assert!(!rule.fits(&process.facts()));
    }
    let mut real = Running::as_nobody(&format!("exec {at} 60")).expect("as before");
    assert!(real.runs(&at.to_string()));
    assert!(
        rule.fits(&real.facts()),
        "whoever runs it, it is the program"
    );
}

#[test]
fn a_rule_names_the_user_who_started_it() {
    let me = Facts::of(std::process::id());
    let user = rustix::process::getuid().as_raw();
    let rule = |text: &str| toml::from_str::<Rule>(text);
    let by_number = |number: u32| rule(&format!("user = {number}")).expect("a rule");
    assert!(by_number(user).fits(&me));
    assert!(!by_number(user + 1).fits(&me));
    assert!(by_number(user).check().is_ok());
    assert_eq!(
        rule("user = \"root\"").expect("everybody has one"),
        by_number(0)
    );
    for (text, said) in [
        ("user = \"no-such-user\"", "no user 'no-such-user'"),
        ("user = -1", "a user's name or number"),
    ] {
        let error = rule(text).expect_err("wrong").to_string();
        assert!(error.contains(said), "{error}");
    }
}
