//! Files of wanted builds, wherever they are on this machine.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use tailscope_process::rooted;
use tailscope_symbols::debug_file::{DEBUG_FOLDER, build_id, place_of};
use tailscope_symbols::table;

/// Files that are read for one build: its program, its debug file, and a copy of both.
const MOST_FILES: usize = 4;
/// Files between two progress reports.
const REPORTED: usize = 1000;

/// A file of a wanted build.
#[derive(Debug)]
struct Found {
    path: PathBuf,
    /// It is not stripped.
    has_symbols: bool,
}

/// The files of each wanted build, those at the paths of the caller first.
#[derive(Debug, Default)]
pub(super) struct Builds {
    files: HashMap<String, Vec<Found>>,
    /// Paths that could not be searched, and why.
    pub(super) unread: Vec<String>,
}

impl Builds {
    /// Searches for builds, each with the path that its file had: at these paths, in these folders and
    /// below, among this machine's debug files, and at the path that the file had.
    pub(super) fn search<'w>(
        paths: &[PathBuf],
        wanted: impl Iterator<Item = (&'w str, &'w str)>,
        mut progress: impl FnMut(&str),
    ) -> Self {
        let wanted: Vec<_> = wanted.filter(|(id, _)| !id.is_empty()).collect();
        let none = |(id, _): &(&str, &str)| ((*id).to_owned(), Vec::new());
        let mut builds = Self {
            files: wanted.iter().map(none).collect(),
            unread: Vec::new(),
        };
        for path in paths {
            if path.is_dir() {
                builds.search_below(path, &mut progress);
                continue;
            }
            match rooted::follow(path) {
                Ok(_) => builds.add(path.clone()),
                Err(why) => builds.unread.push(format!("{}: {why}", path.display())),
            }
        }
        for (id, path) in wanted {
            let packaged = place_of(id).map(|place| Path::new(DEBUG_FOLDER).join(place));
            let places = packaged.into_iter().chain([PathBuf::from(path)]);
            places.for_each(|place| builds.add(place));
        }
        builds
    }

    /// Links to folders are not followed: they may go round.
    fn search_below(&mut self, folder: &Path, mut progress: impl FnMut(&str)) {
        let (mut folders, mut seen) = (vec![folder.to_owned()], 0_usize);
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(&folder);
            if let Err(why) = &entries {
                self.unread.push(format!("{}: {why}", folder.display()));
            }
            for entry in entries.into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push(entry.path());
                    continue;
                }
                self.add(entry.path());
                seen += 1;
                if seen.is_multiple_of(REPORTED) {
                    progress(&format!("searching {}, {seen} files", folder.display()));
                }
            }
        }
    }

    /// Adds a file if it is of a wanted build. A stripped file is added only if the build has no other
    /// file yet.
    fn add(&mut self, path: PathBuf) {
        let Ok(file) = rooted::follow(&path) else {
            return;
        };
        let id = build_id(&file);
        let Some(files) = id.and_then(|id| self.files.get_mut(&id)) else {
            return;
        };
        let has_symbols = table::is_whole(&file);
        let is_known = files.iter().any(|found| found.path == path);
        if !is_known && (files.is_empty() || has_symbols && files.len() < MOST_FILES) {
            files.push(Found { path, has_symbols });
        }
    }

    fn of(&self, build: &str) -> &[Found] {
        self.files.get(build).map_or(&[], Vec::as_slice)
    }

    /// Where the files of a build are.
    pub(super) fn paths(&self, build: &str) -> Vec<String> {
        let paths = self.of(build).iter().map(|found| found.path.display());
        paths.map(|path| path.to_string()).collect()
    }

    /// Whether one of them is not stripped.
    pub(super) fn has_symbols(&self, build: &str) -> bool {
        self.of(build).iter().any(|found| found.has_symbols)
    }

    /// The files of a build, opened, as far as they are still of it. In reverse order:
    /// `Functions::of_files` takes lines from the last file, and those of the caller's paths should win.
    pub(super) fn open(&self, build: &str) -> impl Iterator<Item = File> {
        let found = self.of(build).iter().rev();
        found
            .filter_map(|found| rooted::follow(&found.path).ok())
            .filter(move |file| build_id(file).as_deref() == Some(build))
    }
}
