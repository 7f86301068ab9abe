//! Which processes may have mapped another file since they were looked at.

use std::collections::HashMap;

use crate::proc;

/// How much memory processes had mapped when the files that they run were last listed. A list takes
/// a tenth of a millisecond and more, that number a hundredth, and a process that is at rest or has all
/// its memory keeps it.
#[derive(Debug, Default)]
pub struct MappedSizes(HashMap<u32, (String, u32)>);

/// What was mapped can be just as large as what was unmapped: then it is found this many times later.
const UNCHANGED: u32 = 10;

impl MappedSizes {
    /// Whether it may have mapped a file since this said so the last time.
    pub fn have_changed(&mut self, pid: u32) -> bool {
        let size = proc::read(format!("/proc/{pid}/statm"))
            .ok()
            .and_then(|statm| Some(statm.split_once(' ')?.0.to_owned()));
        let Some(size) = size else { return true };
        let (before, times) = self.0.entry(pid).or_default();
        *times += 1;
        let changed = *before != size || *times > UNCHANGED;
        if changed {
            (*before, *times) = (size, 0);
        }
        changed
    }

    /// The process is gone, or runs another program.
    pub fn forget(&mut self, pid: u32) {
        self.0.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_looked_at_again_when_it_has_mapped_more_and_now_and_then() {
        let mut mapped = MappedSizes::default();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep starts");
        let (pid, us) = (child.id(), std::process::id());
        assert!(mapped.have_changed(us), "not looked at yet");
        let more = std::hint::black_box(vec![1_u8; 64 << 20]); // in a mapping of its own
        assert!(mapped.have_changed(us), "64 MiB more");
        drop(more);
        // It may still be starting; once its memory is the same twice, it sleeps.
        let sleeps = (0..10_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            !mapped.have_changed(pid)
        });
        assert!(sleeps, "its memory never stayed the same");
        let times = 1 + (0..100).take_while(|_| !mapped.have_changed(pid)).count();
        assert_eq!(times, UNCHANGED as usize);
        mapped.forget(pid);
        assert!(mapped.have_changed(pid), "forgotten");
        child.kill().expect("it can be ended");
        child.wait().expect("it ends");
        assert!(
            mapped.have_changed(pid),
            "gone: that may be all there is to know"
        );
    }
}
