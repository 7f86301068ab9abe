//! Where a function's code is in a file, also where the file's own symbols were taken out.

use std::io;

use tailscope_symbols::cxx;
use tailscope_symbols::debug_file::DebugFile;
use tailscope_symbols::nearest::nearest;
use tailscope_symbols::table::{self, Symbol};

use crate::locate::Located;

/// The offsets of all functions of this name, as it is in the file or as C++'s authors wrote it: one,
/// but for local functions of several files.
pub(crate) fn offsets_of(located: &Located, name: &str) -> Result<Vec<u64>, String> {
    let shown = located.shown.display();
    let unread = |e: io::Error| format!("can't read {shown}: {e}");
    let wanted = |symbol: &str| symbol == name || cxx::is_called(symbol, name);
    let own = table::functions_named(&located.file, wanted).map_err(unread)?;
    let mut functions = own.all;
    let mut searched = DebugFile::default();
    if own.stripped && named(&functions, name).is_empty() {
        searched = DebugFile::of(&located.file, &located.shown, &located.root).map_err(unread)?;
        if let Some(debug) = &searched.found {
            functions.extend(table::functions_named(debug, wanted).map_err(unread)?.all);
        }
    }
    let mut addresses: Vec<u64> = Vec::new();
    let found = named(&functions, name);
    if let Some(text) = ambiguous(located, name, &found) {
        return Err(text);
    }
    for function in found {
        if function.is_chooser() {
            return Err(format!(
                "'{name}' in {shown} is an IFUNC, which selects a function when the program starts; \
                 name the function that this machine selects"
            ));
        }
        addresses.push(function.address);
    }
    addresses.sort_unstable();
    addresses.dedup();
    let offsets: Vec<u64> = table::offsets(&located.file, &addresses)
        .map_err(unread)?
        .into_iter()
        .flatten()
        .collect();
    if offsets.is_empty() {
        return Err(unknown(located, name, &functions, &searched));
    }
    Ok(offsets)
}

/// The functions whose symbol this is, else those that C++'s authors call so.
fn named<'f>(functions: &'f [Symbol], name: &str) -> Vec<&'f Symbol> {
    let of = |is_it: &dyn Fn(&str) -> bool| -> Vec<&'f Symbol> {
        functions.iter().filter(|f| is_it(&f.name)).collect()
    };
    let plain = of(&|symbol| symbol == name);
    if plain.is_empty() {
        of(&|symbol| cxx::is_called(symbol, name))
    } else {
        plain
    }
}

/// What is asked back where a name is that of different functions: overloads, or methods of
/// different classes.
fn ambiguous(located: &Located, name: &str, found: &[&Symbol]) -> Option<String> {
    const SHOWN: usize = 6;
    let mut symbols: Vec<(String, &str)> = found
        .iter()
        .filter_map(|f| Some((cxx::signature(&f.name)?, f.name.as_str())))
        .collect();
    symbols.sort_unstable();
    // The two symbols of a constructor are one function to its authors.
    symbols.dedup_by(|a, b| a.0 == b.0);
    if symbols.len() < 2 || found.iter().any(|f| f.name == name) {
        return None;
    }
    let mut text = format!(
        "'{name}' in {} is the name of {} functions; use the symbol of one of them:",
        located.shown.display(),
        symbols.len()
    );
    for (signature, symbol) in symbols.iter().take(SHOWN) {
        text += &format!("\n  {symbol}  {signature}");
    }
    if symbols.len() > SHOWN {
        text += "\n  …";
    }
    Some(text)
}

fn unknown(located: &Located, name: &str, functions: &[Symbol], searched: &DebugFile) -> String {
    let mut text = format!("no function '{name}' in {}", located.shown.display());
    let plain: Vec<String> = functions
        .iter()
        .filter_map(|function| cxx::plain_name(&function.name))
        .collect();
    let symbols = functions.iter().map(|function| function.name.as_str());
    // What people write first: a symbol of C++ holds the name, but is seldom what was meant.
    let mut near = nearest(name, plain.iter().map(String::as_str));
    if near.is_empty() {
        near = nearest(name, symbols);
    }
    if !near.is_empty() {
        text += &format!("; similar names: {}", near.join(", "));
    }
    if searched.found.is_some() {
        return text;
    }
    if let Some(refused) = searched.refused.first() {
        text += &format!(
            ".\nThe file is stripped, and {} belongs to another build of it",
            refused.display()
        );
    } else if let Some(first) = searched.tried.first() {
        text += &format!(
            ".\nThe file is stripped down to the {} functions that other programs may link to. Its debug \
             symbols are not installed (not {}, nor in {} other places). Install them; Debian's \
             packages of debug symbols end in -dbgsym",
            functions.len(),
            first.display(),
            searched.tried.len() - 1
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;
    use crate::locate::locate;

    fn run(folder: &Path, program: &str, arguments: &[&str]) {
        let done = Command::new(program)
            .args(arguments)
            .current_dir(folder)
            .status();
        assert!(done.expect(program).success(), "{program} {arguments:?}");
    }

    fn located(folder: &Path) -> Located {
        let path = folder.join("program");
        locate(path.to_str().expect("plain"), &[], None)
            .expect("there")
            .remove(0)
    }

    #[test]
    fn a_stripped_programs_function_is_found_through_its_debug_link() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let here = folder.path();
        std::fs::write(
            here.join("program.c"),
            "static int hidden_work(int n) { return n + 1; }\n\
             int (*volatile work)(int) = hidden_work;\n\
             int main(void) { return work(-1); }\n",
        )
        .expect("written");
        run(
            here,
            "cc",
            &["-g", "-Wl,--build-id=none", "-o", "program", "program.c"],
        );
        let whole = offsets_of(&located(here), "hidden_work").expect("not stripped");
        run(
            here,
            "objcopy",
            &["--only-keep-debug", "program", "program.debug"],
        );
        run(here, "strip", &["program"]);
        let stripped = offsets_of(&located(here), "hidden_work").expect_err("stripped");
        assert!(stripped.contains("no function 'hidden_work'"), "{stripped}");
        run(
            here,
            "objcopy",
            &["--add-gnu-debuglink=program.debug", "program"],
        );
        assert_eq!(offsets_of(&located(here), "hidden_work"), Ok(whole));
        let near = offsets_of(&located(here), "hidden_wrok").expect_err("misspelt");
        assert!(near.contains("hidden_work"), "{near}");
        // Symbols of another build would lead anywhere.
        run(
            here,
            "cc",
            &["-DOTHER", "-O1", "-o", "program.debug", "program.c"],
        );
        let other = offsets_of(&located(here), "hidden_work").expect_err("another build's");
        assert!(other.contains("belongs to another build"), "{other}");
    }

    #[test]
    fn a_function_in_cplusplus_is_found_by_the_name_that_its_source_has() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let here = folder.path();
        std::fs::write(
            here.join("program.cc"),
            "struct Server { int answer(int n); int count(int); int count(long); };\n\
             __attribute__((noinline)) int Server::answer(int n) { return n + 1; }\n\
             __attribute__((noinline)) int Server::count(int n) { return n + 2; }\n\
             __attribute__((noinline)) int Server::count(long n) { return (int)n + 3; }\n\
             int main() { Server s; return s.answer(-1) + s.count(1) + s.count(1L); }\n",
        )
        .expect("written");
        run(here, "c++", &["-o", "program", "program.cc"]);
        let by_symbol = offsets_of(&located(here), "_ZN6Server6answerEi").expect("its symbol");
        for name in ["Server::answer", "answer"] {
            assert_eq!(offsets_of(&located(here), name).as_ref(), Ok(&by_symbol));
        }
        let overloaded = offsets_of(&located(here), "Server::count").expect_err("there are two");
        assert!(
            overloaded.contains("_ZN6Server5countEi  Server::count(int)"),
            "{overloaded}"
        );
        assert!(offsets_of(&located(here), "_ZN6Server5countEl").is_ok());
        let misspelt = offsets_of(&located(here), "Server::anwser").expect_err("misspelt");
        assert!(misspelt.contains("Server::answer"), "{misspelt}");
    }

    #[test]
    fn a_function_that_is_chosen_at_the_start_is_refused() {
        let libc = locate(
            "libc",
            &[crate::Process {
                pid: std::process::id(),
            }],
            None,
        )
        .expect("tests are linked with libc");
        let chosen = offsets_of(&libc[0], "memcpy");
        if cfg!(target_arch = "x86_64") {
            let error = chosen.expect_err("it is an IFUNC");
            assert!(error.contains("IFUNC"), "{error}");
        }
        assert_eq!(
            offsets_of(&libc[0], "malloc")
                .expect("it is exported")
                .len(),
            1
        );
    }
}
