//! `fsync`: the planted cause "the disk is busy" (`io` of whoever else waits for it).

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use rustix::fs::OFlags;

use crate::clock::parse_duration;
use crate::cpu;
use crate::stop::Stop;

/// Keep a disk busy with writes that must reach it.
#[derive(Args)]
#[command(after_help = "Example:
  tailscope-lab fsync --dir /var/lib/server --threads 2 --duration 30s")]
pub struct Fsync {
    /// Folder on the disk; the files in it have no names and go with the program
    #[arg(long, default_value = ".")]
    dir: PathBuf,

    /// Bytes between two fsyncs
    #[arg(long, default_value_t = 1 << 20)]
    block: usize,

    /// Files that are written at a time
    #[arg(long, default_value_t = 1)]
    threads: u16,

    /// Rest between two fsyncs
    #[arg(long, default_value = "0s", value_parser = parse_duration)]
    rest: Duration,

    /// Write from this CPU only
    #[arg(long)]
    cpu: Option<usize>,

    /// Stop after this time [default: at Ctrl-C]
    #[arg(short, long, value_parser = parse_duration)]
    duration: Option<Duration>,
}

impl Fsync {
    pub fn run(self) -> anyhow::Result<()> {
        cpu::pin_if_asked(self.cpu)?;
        let stop = Stop::after(self.duration)?;
        thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|_| scope.spawn(|| self.write(&stop)))
                .collect();
            threads
                .into_iter()
                .try_for_each(|t| t.join().expect("it doesn't panic"))
        })
    }

    /// Writes the same place over and over, so that the disk doesn't fill up.
    fn write(&self, stop: &Stop) -> anyhow::Result<()> {
        let file = nameless(&self.dir)?;
        let block = vec![0xa5; self.block];
        while !stop.due() {
            file.write_all_at(&block, 0)
                .and_then(|()| file.sync_all())
                .with_context(|| format!("can't write in {}", self.dir.display()))?;
            if !self.rest.is_zero() {
                thread::sleep(self.rest);
            }
        }
        Ok(())
    }
}

/// A file that no crash can leave behind.
fn nameless(dir: &Path) -> anyhow::Result<File> {
    OpenOptions::new()
        .write(true)
        .custom_flags(OFlags::TMPFILE.bits() as i32)
        .open(dir)
        .with_context(|| format!("can't make a file in {}", dir.display()))
}
