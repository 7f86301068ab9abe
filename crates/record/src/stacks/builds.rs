//! Files of wanted builds, wherever they are on this machine.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use tailscope_process::rooted;
use tailscope_symbols::debug_file::{DEBUG_FOLDER, build_id, place_of};
use tailscope_symbols::table;

/// Files with symbols that are read for one build: its program, its debug file, and a copy of both.
const MOST_FILES: usize = 4;
/// The search reports its progress once for each of so many files.
const REPORTED: usize = 1000;

/// The files of each wanted build, those that were asked for first.
#[derive(Debug, Default)]
pub(super) struct Builds {
    files: HashMap<String, Vec<PathBuf>>,
    /// Folders that could not be searched, and why.
    pub(super) unread: Vec<String>,
}

impl Builds {
    /// Searches for builds, each named with the path that its file had: in these folders and below, among
    /// this machine's debug files, and at that path.
    pub(super) fn search<'w>(
        folders: &[PathBuf],
        wanted: impl Iterator<Item = (&'w str, &'w str)>,
        mut progress: impl FnMut(&str),
    ) -> Self {
        let wanted: Vec<_> = wanted.filter(|(id, _)| !id.is_empty()).collect();
        let none = |(id, _): &(&str, &str)| ((*id).to_owned(), Vec::new());
        let mut builds = Self {
            files: wanted.iter().map(none).collect(),
            unread: Vec::new(),
        };
        for folder in folders {
            builds.search_below(folder, &mut progress);
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
                    progress(&format!("{seen} files, {}", folder.display()));
                }
            }
        }
    }

    /// Adds a file if it is of a wanted build. One that is stripped only adds to none.
    fn add(&mut self, path: PathBuf) {
        let Ok(file) = rooted::follow(&path) else {
            return;
        };
        let id = build_id(&file);
        if let Some(files) = id.and_then(|id| self.files.get_mut(&id))
            && (files.is_empty() || files.len() < MOST_FILES && table::is_whole(&file))
            && !files.contains(&path)
        {
            files.push(path);
        }
    }

    /// The files of a build.
    pub(super) fn of(&self, build: &str) -> &[PathBuf] {
        self.files.get(build).map_or(&[], Vec::as_slice)
    }

    /// The same, opened, as far as they are still of it: those that were asked for last, because what they
    /// say of lines counts.
    pub(super) fn open(&self, build: &str) -> impl Iterator<Item = File> {
        let paths = self.of(build).iter().rev();
        paths
            .filter_map(|path| rooted::follow(path).ok())
            .filter(move |file| build_id(file).as_deref() == Some(build))
    }
}
