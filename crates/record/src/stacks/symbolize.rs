//! Names for the functions on a ledger's stacks, after the recording and on any machine.
//!
//! The table of stacks has the build id of each file with code. A file of the same build, a program or its
//! debug file, names the code as it would have in the recording. Names from any other file would be
//! wrong.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use serde::Serialize;
use tailscope_symbols::functions::Functions;
use tailscope_trace::{OwnedValue, Result, STACKS, TableEditor};

use super::builds::Builds;
use super::tables::{FRAMES, FrameRow};

/// A file with code on a ledger's stacks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CodeFile {
    /// Its path as the recorded process had it.
    pub path: String,
    /// Which build it is of, in hexadecimal digits; empty: it has no build id, or the ledger has none.
    pub build_id: String,
    /// How many different addresses in its code the stacks have.
    pub addresses: usize,
    /// How many of them have names now.
    pub named: usize,
    /// How many of these had none before.
    pub new: usize,
    /// How many had a name, and have those of inlined functions now, too.
    pub deepened: usize,
    /// The files of the same build that were found, by their paths.
    pub symbols: Vec<String>,
    /// Whether one of these is not stripped.
    pub has_symbols: bool,
}

/// What came of naming functions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Symbolized {
    /// The files with code, by their paths.
    pub files: Vec<CodeFile>,
    /// Paths that could not be searched, and why.
    pub unread: Vec<String>,
}

/// One frame: the rows of a function with those that were inlined into it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Frame {
    stack: i64,
    /// The innermost first.
    functions: Vec<String>,
    module: String,
    address: i64,
    whole: i64,
    python: i64,
    build_id: String,
}

/// Puts rows together to frames.
#[derive(Debug, Default)]
struct Frames {
    /// The frame whose last row has not come yet.
    pending: Option<Frame>,
}

/// The functions at each address in a file's code.
type Addresses = HashMap<i64, Vec<String>>;
/// By the file's path and build.
type Code = BTreeMap<(String, String), Addresses>;
/// By the build and the address: the functions there, where more of them are known than before.
type Names = HashMap<(String, i64), Vec<String>>;

/// Names what files of the same builds name. They are searched for at the paths `debug`, in these
/// folders and below, among this machine's debug packages, and at the recorded paths on this machine.
/// `progress` is called with what is being done.
///
/// # Errors
/// Those of [`TableEditor`]. The ledger is then as it was.
pub fn symbolize(
    ledger: &Path,
    debug: &[PathBuf],
    mut progress: impl FnMut(&str),
) -> Result<Symbolized> {
    let table = TableEditor::open(ledger, STACKS, "stacks", FRAMES)?;
    let code = code_of(&table)?;
    let wanted = code.keys().map(|(path, id)| (id.as_str(), path.as_str()));
    let builds = Builds::search(debug, wanted, &mut progress);
    let mut names = Names::new();
    let mut files = Vec::new();
    for ((path, build_id), before) in code {
        progress(&format!("reading symbols of {path}"));
        let mut file = CodeFile {
            addresses: before.len(),
            symbols: builds.paths(&build_id),
            has_symbols: builds.has_symbols(&build_id),
            path,
            build_id,
            ..CodeFile::default()
        };
        let functions = Functions::of_files(builds.open(&file.build_id));
        for (address, old) in before {
            let new = functions.find(address as u64);
            file.named += usize::from(!new.is_empty() || !old.is_empty());
            // A stripped file knows fewer of those that were inlined.
            if new.len() > old.len() {
                match old.is_empty() {
                    true => file.new += 1,
                    false => file.deepened += 1,
                }
                names.insert((file.build_id.clone(), address), new);
            }
        }
        files.push(file);
    }
    if !names.is_empty() {
        rewrite(&table, &names)?;
    }
    let unread = builds.unread;
    Ok(Symbolized { files, unread })
}

fn code_of(table: &TableEditor) -> Result<Code> {
    let (mut code, mut frames) = (Code::new(), Frames::default());
    table.rows(|row| {
        if let Some(frame) = frames.add(row)
            && frame.is_of_a_file()
        {
            let addresses = code.entry((frame.module, frame.build_id)).or_default();
            addresses.insert(frame.address, frame.functions);
        }
        Ok(())
    })?;
    Ok(code)
}

/// Writes all frames anew.
fn rewrite(table: &TableEditor, names: &Names) -> Result<()> {
    let mut frames = Frames::default();
    let mut writer = table.replace()?;
    let (mut stack, mut depth) = (None, 0);
    table.rows(|row| {
        let Some(mut frame) = frames.add(row) else {
            return Ok(());
        };
        if let Some(new) = names.get(&(frame.build_id.clone(), frame.address)) {
            frame.functions.clone_from(new);
        }
        if stack.replace(frame.stack) != Some(frame.stack) {
            depth = 0;
        }
        depth = frame.row().write(&mut writer, depth)?;
        Ok(())
    })?;
    writer.finish().map(drop)
}

impl Frames {
    /// Takes a row, and gives back the frame that it ends.
    fn add(&mut self, row: &[OwnedValue]) -> Option<Frame> {
        use OwnedValue::{Number, Text};
        let [
            Number(stack),
            _,
            Text(function),
            Text(module),
            Number(address),
            Number(inlined),
            Number(whole),
            Number(python),
            Text(build_id),
        ] = row
        else {
            unreachable!("as the table's columns are");
        };
        let frame = self.pending.get_or_insert_with(|| Frame {
            stack: *stack,
            module: module.clone(),
            address: *address,
            whole: *whole,
            python: *python,
            build_id: build_id.clone(),
            ..Frame::default()
        });
        if !function.is_empty() {
            frame.functions.push(function.clone());
        }
        self.pending.take_if(|_| *inlined == 0)
    }
}

impl Frame {
    /// Whether it is code in a file, and not the kernel's, made at run time, or Python's.
    fn is_of_a_file(&self) -> bool {
        self.python == 0 && !self.module.starts_with('[')
    }

    fn row(&self) -> FrameRow<'_> {
        FrameRow {
            stack: self.stack,
            functions: &self.functions,
            module: &self.module,
            address: self.address,
            whole: self.whole,
            python: self.python,
            build_id: &self.build_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::Command;

    use tailscope_symbols::debug_file::build_id;
    use tailscope_symbols::table;
    use tailscope_trace::{CauseSet, Existing, LedgerWriter, Metadata, Sealing, Summary, Value};

    use super::*;

    /// The functions of a program, one of which is inlined where the compiler says what it inlines.
    const SOURCE: &str = "\
        static inline __attribute__((always_inline)) long inner(long n) { return n * n + 3; }\n\
        __attribute__((noinline)) long outer(long n) { return inner(n) / 7; }\n\
        int main(int argc, char **argv) { (void)argv; return (int)outer(argc); }\n";

    fn run(folder: &Path, program: &str, arguments: &[&str]) {
        let mut command = Command::new(program);
        let done = command.args(arguments).current_dir(folder).output();
        let done = done.expect("it runs");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{program}: {said}");
    }

    /// A stripped program, its debug file in a folder of its own, and where `inner` is inlined.
    fn program(folder: &Path) -> (String, i64) {
        std::fs::write(folder.join("program.c"), SOURCE).expect("written");
        let build = ["-g", "-O2", "-Wl,--build-id=sha1", "-o", "program"];
        run(folder, "cc", &[&build[..], &["program.c"]].concat());
        let built = File::open(folder.join("program")).expect("built");
        let symbols = table::functions(&built).expect("it has some").all;
        let outer = symbols.iter().find(|symbol| symbol.name == "outer");
        let outer = outer.expect("it was kept");
        let all = File::open(folder.join("program")).expect("built");
        let functions = Functions::of(all, None);
        let mut code = outer.address..outer.address + outer.size;
        let inlined = code.find(|at| functions.find(*at) == ["inner", "outer"]);
        let id = build_id(&built).expect("its linker wrote one");
        std::fs::create_dir_all(folder.join("debug/deep")).expect("made");
        let kept = ["--only-keep-debug", "program", "debug/deep/any-name"];
        run(folder, "objcopy", &kept);
        run(folder, "strip", &["program"]);
        (id, inlined.expect("it was inlined") as i64)
    }

    type Row<'r> = (i64, i64, &'r str, &'r str, i64, i64, &'r str);

    fn ledger(folder: &Path, rows: &[Row<'_>]) {
        let metadata = Metadata::default();
        let (none, sealing) = (CauseSet::default(), Sealing::default());
        let ledger = LedgerWriter::create(folder, metadata, none, sealing, Existing::Refuse);
        let ledger = ledger.expect("begun");
        let table = ledger.table(STACKS, "stacks", FRAMES).expect("begun");
        let mut table = table.of_one_file();
        for (stack, depth, function, module, address, inlined, id) in rows {
            let row = [
                Value::Number(*stack),
                Value::Number(*depth),
                Value::Text(function),
                Value::Text(module),
                Value::Number(*address),
                Value::Number(*inlined),
                Value::Number(1),
                Value::Number(0),
                Value::Text(id),
            ];
            table.push(&row).expect("taken");
        }
        table.finish().expect("written");
        ledger.finish(Summary::default()).expect("ended");
    }

    /// Of each row: its stack, depth and function, and whether it was inlined.
    fn stored(folder: &Path) -> Vec<(i64, i64, String, i64)> {
        use OwnedValue::{Number, Text};
        let table = TableEditor::open(folder, STACKS, "stacks", FRAMES).expect("it is there");
        let mut rows = Vec::new();
        let read = table.rows(|row| {
            let [
                Number(stack),
                Number(depth),
                Text(function),
                ..,
                Number(inlined),
                _,
                _,
                _,
            ] = row
            else {
                panic!("{row:?}");
            };
            rows.push((*stack, *depth, function.clone(), *inlined));
            Ok(())
        });
        read.expect("read");
        rows
    }

    #[test]
    fn functions_get_the_names_of_their_own_build_and_of_no_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let (id, outer) = program(folder.path());
        let to = folder.path().join("ledger");
        let other = "0".repeat(40);
        ledger(
            &to,
            &[
                (1, 0, "read", "[kernel]", 99, 0, ""),
                (1, 1, "", "/gone/program", outer, 0, &id),
                (1, 2, "first", "/gone/program", 1, 1, &id),
                (1, 3, "last", "/gone/program", 1, 0, &id),
                (2, 0, "", "/gone/program", outer, 0, &other),
                (2, 1, "", "/gone/older", outer, 0, ""),
            ],
        );
        let debug = folder.path().join("debug");
        let done = symbolize(&to, std::slice::from_ref(&debug), |_| {});
        let files = done.expect("done").files;
        let about: Vec<_> = files
            .iter()
            .map(|file| (&*file.path, file.addresses, file.new, file.named))
            .collect();
        let expected = [
            ("/gone/older", 1, 0, 0),
            ("/gone/program", 1, 0, 0),
            ("/gone/program", 2, 1, 2),
        ];
        assert_eq!(about, expected);
        let found = debug.join("deep/any-name").display().to_string();
        assert_eq!(files[2].symbols, [found]);
        let row = |stack, depth, name: &str, inlined| (stack, depth, name.to_owned(), inlined);
        let now = [
            row(1, 0, "read", 0),
            row(1, 1, "inner", 1),
            row(1, 2, "outer", 0),
            row(1, 3, "first", 1),
            row(1, 4, "last", 0),
            row(2, 0, "", 0),
            row(2, 1, "", 0),
        ];
        assert_eq!(stored(&to), now);
        // A second time nothing is new, nor does a file take names away that knows fewer.
        for folder in [debug, folder.path().to_owned()] {
            let again = symbolize(&to, &[folder], |_| {}).expect("done").files;
            assert_eq!((again[2].new, again[2].named), (0, 2));
            assert_eq!(stored(&to), now);
        }
    }

    #[test]
    fn a_recording_that_goes_on_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let refused = symbolize(folder.path(), &[], |_| {}).map_err(|e| e.to_string());
        assert!(refused.is_err_and(|why| why.contains("is no ledger")));
        let (none, sealing) = (CauseSet::default(), Sealing::default());
        let (to, metadata) = (folder.path().join("ledger"), Metadata::default());
        let ledger = LedgerWriter::create(&to, metadata, none, sealing, Existing::Refuse);
        let refused = symbolize(&to, &[], |_| {}).map_err(|e| e.to_string());
        assert!(refused.is_err_and(|why| why.contains("is in use")));
        ledger
            .expect("begun")
            .finish(Summary::default())
            .expect("ended");
        let done = symbolize(&to, &[folder.path().join("gone")], |_| {});
        let done = done.expect("done");
        assert_eq!((done.files.len(), done.unread.len()), (0, 1));
    }
}
