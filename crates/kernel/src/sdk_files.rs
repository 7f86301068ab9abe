//! The files in which the SDK's probe is listened to.

use std::collections::{HashMap, HashSet};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::thread::{Builder, JoinHandle};

use libbpf_rs::{Link, Object, UprobeMultiOpts, UprobeOpts};
use tailscope_process::owner::FileId;
use tailscope_symbols::sdk::{SdkFile, SdkProbe};

use crate::object::program;
use crate::privilege::lacks_admin_for_uprobes;

/// In so many files at a time: each place takes a descriptor and some memory of the kernel's.
const MOST_FILES: usize = 1024;
/// And in so many that processes of one user have brought: the others' must have room.
const MOST_OF_USER: usize = 256;
/// In so many places of one file, however often it is rewritten.
const MOST_PLACES: usize = 256;
/// The most threads that detach at a time.
const DETACHING: usize = 32;
/// Any process: which are recorded the program decides.
const EVERYBODY: i32 = -1;

/// The SDK in a file can't be reached.
#[derive(Debug, thiserror::Error)]
pub enum SdkFileError {
    /// The kernel refuses.
    #[error("can't attach to the SDK's probe in {file}: {source}", file = .file.display())]
    Kernel {
        /// The file, as its process has it.
        file: PathBuf,
        /// What the kernel said.
        source: libbpf_rs::Error,
    },
    /// The kernel asks for a capability that this process lacks.
    #[error(
        "can't attach to the SDK's probe in {file}: before Linux 6.6 this takes CAP_SYS_ADMIN; run as \
         root, or install packaging/linux-6.1.conf for the service",
        file = .file.display()
    )]
    Privilege {
        /// The file, as its process has it.
        file: PathBuf,
    },
    /// There are too many.
    #[error(
        "can't attach to the SDK's probe in {file}: the limit of {MOST_FILES} files, {MOST_OF_USER} of \
         one user, or of {MOST_PLACES} places in one file, is reached; spans from this file are missing",
        file = .file.display()
    )]
    TooMany {
        /// The file, as its process has it.
        file: PathBuf,
    },
}

/// One of them.
#[derive(Default)]
struct Attached {
    /// The kernel holds the file as long as these live, so its id is that of no other.
    links: Vec<Link>,
    places: HashSet<SdkProbe>,
    /// Whose process had it mapped first.
    user: u32,
    /// Who has it mapped, of a file that no name leads to.
    users: HashSet<u32>,
}

/// All of them. Dropped, nobody is listened to.
#[derive(Default)]
pub(crate) struct SdkFiles {
    files: HashMap<FileId, Attached>,
    detaching: Vec<JoinHandle<()>>,
}

impl SdkFiles {
    /// Listens to the probe in a file that this user's process has mapped, in every process that maps it.
    pub(crate) fn attach(
        &mut self,
        object: &mut Object,
        file: &SdkFile,
        pid: u32,
        user: u32,
    ) -> Result<(), SdkFileError> {
        if !self.files.contains_key(&file.id) {
            let of_user = self.files.values().filter(|of| of.user == user).count();
            if self.files.len() >= MOST_FILES || of_user >= MOST_OF_USER {
                return Err(too_many(file));
            }
            let new = Attached {
                user,
                ..Attached::default()
            };
            self.files.insert(file.id, new);
        }
        let attached = self.files.entry(file.id).or_default();
        if file.is_unlinked {
            attached.users.insert(pid);
        } else {
            attached.users.clear();
        }
        let done = attached.listen(object, file);
        if attached.links.is_empty() {
            self.files.remove(&file.id);
        }
        done
    }

    /// Whether the probe in this file is listened to.
    pub(crate) fn has(&self, file: FileId) -> bool {
        self.files.contains_key(&file)
    }

    /// A process is gone, or runs another program: files that no other one can have go too.
    pub(crate) fn forget(&mut self, pid: u32) {
        let is_last = |file: &mut Attached| file.users.remove(&pid) && file.users.is_empty();
        let gone = self.files.extract_if(|_, file| is_last(file));
        let gone: Vec<Attached> = gone.map(|(_, file)| file).collect();
        self.detach(gone);
    }

    /// Listens to nobody.
    pub(crate) fn clear(&mut self) {
        let all = self.files.drain().map(|(_, file)| file).collect();
        self.detach(all);
        for detaching in self.detaching.drain(..) {
            let _ = detaching.join();
        }
    }

    /// Detaches on other threads. The kernel waits for a quiet state of every CPU for each file, some 50 ms, and
    /// a process can map as many files as it likes.
    fn detach(&mut self, mut files: Vec<Attached>) {
        self.detaching.retain(|detaching| !detaching.is_finished());
        let threads = DETACHING.saturating_sub(self.detaching.len()).max(1);
        let share = files.len().div_ceil(threads);
        while !files.is_empty() {
            let part = files.split_off(files.len().saturating_sub(share));
            let detach = Builder::new().name("detach".into());
            // Without a thread, `part` is dropped here.
            self.detaching.extend(detach.spawn(move || drop(part)));
        }
    }
}

impl Drop for SdkFiles {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Attached {
    fn listen(&mut self, object: &mut Object, file: &SdkFile) -> Result<(), SdkFileError> {
        // Through the descriptor: the name may lead elsewhere by now.
        let path = format!("/proc/self/fd/{}", file.file.as_raw_fd());
        for probe in &file.probes {
            if self.places.contains(probe) {
                continue;
            }
            if self.places.len() >= MOST_PLACES {
                return Err(too_many(file));
            }
            let link = attach_at(object, &path, probe);
            self.links
                .push(link.map_err(|source| refused(file, source))?);
            self.places.insert(*probe);
        }
        Ok(())
    }
}

/// With uprobe_multi, which CAP_PERFMON is enough for. Where the kernel has no such link (Linux 6.6),
/// with a perf event, which takes CAP_SYS_ADMIN.
fn attach_at(object: &mut Object, path: &str, probe: &SdkProbe) -> libbpf_rs::Result<Link> {
    let program = program(object, "on_sdk_thread");
    let multi = UprobeMultiOpts {
        offsets: vec![probe.spot.offset as usize],
        ref_ctr_offsets: vec![probe.spot.semaphore as usize],
        cookies: vec![probe.argument.0],
        ..Default::default()
    };
    program
        .attach_uprobe_multi_with_opts(EVERYBODY, path, "", multi)
        .or_else(|_| {
            let single = UprobeOpts {
                ref_ctr_offset: probe.spot.semaphore as usize,
                cookie: probe.argument.0,
                ..Default::default()
            };
            let offset = probe.spot.offset as usize;
            program.attach_uprobe_with_opts(EVERYBODY, path, offset, single)
        })
}

fn refused(file: &SdkFile, source: libbpf_rs::Error) -> SdkFileError {
    let file = file.shown.clone();
    if lacks_admin_for_uprobes() {
        SdkFileError::Privilege { file }
    } else {
        SdkFileError::Kernel { file, source }
    }
}

fn too_many(file: &SdkFile) -> SdkFileError {
    SdkFileError::TooMany {
        file: file.shown.clone(),
    }
}
