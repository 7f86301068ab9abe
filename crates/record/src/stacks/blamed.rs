//! The function of a stack to which the time of a cause is put down, for a screen. The rule is that of
//! `python/tailscope/statistics/blamed_function.py`, which says why; `tests/shared/blamed.json` holds both
//! to the same answers.

use tailscope_trace::Cause;

use super::names::{JIT, KERNEL, NOWHERE, Named, PYTHON};

/// A function on a stack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Call {
    /// Empty where nothing names it.
    pub(super) function: String,
    /// Its file.
    pub(super) module: String,
    pub(super) address: u64,
    /// It is one of Python.
    pub(super) python: bool,
}

/// Files whose functions are not a program's own: they wait on behalf of their callers.
const LIBRARIES: &[&str] = &[
    "libc",
    "libpthread",
    "libm",
    "libdl",
    "librt",
    "libgcc_s",
    "libstdc++",
    "libc++",
    "libc.musl",
];
/// The loaders' names go on with the kind of machine.
const LOADERS: &[&str] = &["ld-linux", "ld-musl"];
const VDSO: &str = "[vdso]";
/// Crates and the like in which functions are a language's; of a method, behind a `<`.
const CRATES: &[&str] = &["std", "core", "alloc", "__gnu_cxx", "rustix", "libc"];
/// The same where the name goes on, as `parking_lot_core`.
const FAMILIES: &[&str] = &["__gthread", "parking_lot"];
/// How other functions begin that languages put into the program's own file.
const RUNTIMES: &[&str] = &[
    "runtime.",
    "runtime/",
    "syscall.",
    "internal/",
    "sync.",
    "time.Sleep",
    "pthread_",
    "clock_nanosleep",
];
/// The same behind one or two underscores.
const UNDERSCORED: &[&str] = &["lll", "futex", "pthread", "GI_", "libc", "clock_"];
/// Whole names.
const CALLS: &[&str] = &["clone", "clone3", "nanosleep", "usleep", "sleep"];

fn file_name(module: &str) -> &str {
    module.rsplit('/').next().unwrap_or(module)
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Whether a shared library's name goes on like this behind its first part: `.so.6`, `-2.31.so`.
fn is_shared(rest: &str) -> bool {
    let is_rest = |rest: &str| rest.chars().all(|c| c == '.' || is_word(c));
    if rest.strip_prefix(".so").is_some_and(is_rest) {
        return true;
    }
    rest.starts_with(['-', '.']) && is_rest(&rest[1..]) && rest[1..].contains(".so")
}

fn is_library(module: &str) -> bool {
    let file = file_name(module);
    let rest = |name: &&str| file.strip_prefix(*name);
    let of_loader = |rest: &str| is_shared(rest.trim_start_matches(|c| c == '-' || is_word(c)));
    file == VDSO
        || LIBRARIES.iter().filter_map(rest).any(is_shared)
        || LOADERS.iter().filter_map(rest).any(of_loader)
}

fn is_runtime(function: &str) -> bool {
    let bare = function.strip_prefix('<').unwrap_or(function);
    let in_crate = |name: &&str| {
        let rest = bare.strip_prefix(*name);
        rest.is_some_and(|rest| rest.starts_with("::"))
    };
    let of_family = |name: &&str| {
        let rest = bare
            .strip_prefix(*name)
            .map(|rest| rest.trim_start_matches(is_word));
        rest.is_some_and(|rest| rest.starts_with("::"))
    };
    let rest = function.strip_prefix('_').unwrap_or_default();
    let rest = rest.strip_prefix('_').unwrap_or(rest);
    CRATES.iter().any(in_crate)
        || FAMILIES.iter().any(of_family)
        || RUNTIMES.iter().any(|begin| function.starts_with(begin))
        || UNDERSCORED.iter().any(|begin| rest.starts_with(begin))
        || CALLS.contains(&function)
}

/// Whether a file has the interpreter of Python: `python3.11`, `libpython3.11.so.1.0`, `uwsgi-core`.
fn has_interpreter(module: &str) -> bool {
    let file = file_name(module);
    if file.starts_with("uwsgi") {
        return true;
    }
    let of_library = file.strip_prefix("lib").unwrap_or(file);
    let Some(rest) = of_library.strip_prefix("python") else {
        return false;
    };
    let rest = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    let rest = rest.strip_prefix('t').unwrap_or(rest);
    rest.is_empty() || rest.starts_with("so") || rest.starts_with(".so")
}

/// Whether a source is one of Python's standard library.
fn is_standard(source: &str) -> bool {
    if source.starts_with("<frozen ") {
        return true;
    }
    let folders = ["/lib/python3.", "/lib64/python3."];
    let rest = folders.iter().find_map(|folder| source.split_once(folder));
    let within = rest.and_then(|(_, rest)| rest.split_once('/'));
    within.is_some_and(|(_, path)| {
        !path.starts_with("site-packages/") && !path.starts_with("dist-packages/")
    })
}

impl Call {
    /// The functions of a frame, the innermost first.
    pub(super) fn of(named: &Named) -> Vec<Self> {
        let call = |function: &str| Self {
            function: function.to_owned(),
            module: named.module.clone(),
            address: named.address,
            python: named.python,
        };
        match named.functions.as_slice() {
            [] => vec![call("")],
            functions => functions.iter().map(|name| call(name)).collect(),
        }
    }

    /// What it is called, or where it is.
    pub(super) fn name(&self) -> String {
        match (self.function.as_str(), self.module.as_str()) {
            ("", JIT) => "JIT code".to_owned(),
            ("", PYTHON) => "Python code".to_owned(),
            ("", module) => format!("{}+{:#x}", file_name(module), self.address),
            (function, _) => function.to_owned(),
        }
    }

    fn is_own(&self) -> bool {
        if self.python {
            return !is_standard(&self.module);
        }
        let is_foreign =
            self.module == KERNEL || self.module == NOWHERE || is_library(&self.module);
        !is_foreign && !is_runtime(&self.function)
    }

    /// Whether a process made it, and nothing has named it.
    pub(super) fn is_unnamed_jit(&self) -> bool {
        self.function.is_empty() && self.module == JIT
    }

    fn is_interpreters(&self) -> bool {
        !self.python && has_interpreter(&self.module)
    }

    /// Whether its time, called from Python, is that of the function of Python.
    fn works_for_python(&self) -> bool {
        !self.python
            && self.module != KERNEL
            && (self.is_interpreters() || is_library(&self.module) || self.function.is_empty())
    }
}

/// Whether such time is put down to the innermost function, be it the kernel's.
fn is_on_cpu(cause: Option<Cause>) -> bool {
    matches!(
        cause,
        None | Some(Cause::SoftirqNet | Cause::SoftirqTimer | Cause::SoftirqOther | Cause::Irq)
    )
}

/// The place of the function to which the time of a cause is put down, the innermost being 0; `None`: the
/// stack is empty. No cause: it was running.
pub(super) fn blamed(calls: &[Call], cause: Option<Cause>) -> Option<usize> {
    if calls.is_empty() {
        return None;
    }
    let python = calls.iter().position(|call| call.python);
    let place = match (is_on_cpu(cause), python) {
        (true, None) => Some(0),
        (true, Some(_)) => calls.iter().position(|call| !call.works_for_python()),
        (false, None) => calls.iter().position(Call::is_own).or_else(|| {
            let of_user = |call: &Call| call.module != KERNEL;
            calls.iter().position(of_user)
        }),
        (false, Some(first)) => {
            let own = |call: &Call| {
                call.is_own() && !call.works_for_python() && !is_standard(&call.module)
            };
            let last = calls.iter().rposition(|call| call.python);
            let within = &calls[..=last.unwrap_or(first)];
            within.iter().position(own).or(Some(first))
        }
    };
    Some(place.unwrap_or(0))
}

/// Its callers, the next first. None where the stack is not `whole`: what its end looks like may be wrong.
pub(super) fn callers(calls: &[Call], place: usize, whole: bool) -> impl Iterator<Item = &Call> {
    let python = calls.iter().any(|call| call.python);
    let around = if whole { &calls[place + 1..] } else { &[] };
    around
        .iter()
        .filter(move |call| !(python && call.is_interpreters()))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// A function with a letter for its file, as `tests/shared/blamed.json` has it.
    fn call(text: &str) -> Call {
        let (file, function) = text.split_once(':').expect("a file's letter");
        let module = match file {
            "k" => KERNEL,
            "c" => "/usr/lib/x86_64-linux-gnu/libc.so.6",
            "p" => "/srv/server",
            "i" => "/usr/bin/python3.11",
            "e" => "/usr/lib/_json.cpython-311-x86_64-linux-gnu.so",
            "s" => "/usr/lib/python3.11/threading.py",
            "l" => "/usr/lib/python3.11/lib-dynload/_ssl.cpython-311-x86_64-linux-gnu.so",
            "d" => "/srv/venv/lib/python3.11/site-packages/jobs.py",
            "y" => "/srv/python3/app.py",
            _ => panic!("no such file: {file}"),
        };
        Call {
            function: function.to_owned(),
            module: module.to_owned(),
            address: 0,
            python: matches!(file, "s" | "d" | "y"),
        }
    }

    #[test]
    fn the_function_is_the_one_that_explanations_name() {
        let cases = include_str!("../../../../tests/shared/blamed.json");
        let cases: Vec<Value> = serde_json::from_str(cases).expect("cases");
        for case in &cases {
            let texts = |key: &str| -> Vec<&str> {
                let listed = case[key].as_array().expect("a list");
                listed
                    .iter()
                    .map(|text| text.as_str().expect("text"))
                    .collect()
            };
            let calls: Vec<Call> = texts("stack").into_iter().map(call).collect();
            let cause = Cause::ALL
                .into_iter()
                .find(|cause| case["cause"] == cause.name());
            let place = blamed(&calls, cause).expect("a function");
            assert_eq!(calls[place].function, case["blamed"], "{case}");
            let whole = case["whole"].as_bool().unwrap_or(true);
            let callers: Vec<_> = callers(&calls, place, whole)
                .map(|call| &call.function)
                .collect();
            assert_eq!(callers, texts("callers"), "{case}");
        }
    }

    #[test]
    fn functions_of_languages_are_known_by_their_names() {
        for name in [
            "<rustix::fd::Fd as core::ops::Drop>::drop",
            "__pthread_cond_wait",
            "usleep",
        ] {
            assert!(is_runtime(name), "{name}");
        }
        for name in [
            "usleep_until_ready",
            "corelib::run",
            "futex_free",
            "synchronize",
        ] {
            assert!(!is_runtime(name), "{name}");
        }
    }

    #[test]
    fn libraries_and_interpreters_are_known_by_their_files() {
        for library in [
            "/lib/libc-2.31.so",
            "libstdc++.so.6.0.30",
            "ld-linux-x86-64.so.2",
            "[vdso]",
        ] {
            assert!(is_library(library), "{library}");
        }
        for other in [
            "/srv/libcool.so",
            "libcurl.so.4",
            "libm-a/x",
            "libc.so.6 (deleted)",
            "server",
        ] {
            assert!(!is_library(other), "{other}");
        }
        for python in ["/usr/bin/python3.13t", "libpython3.11.so.1.0", "uwsgi-core"] {
            assert!(has_interpreter(python), "{python}");
        }
        assert!(!has_interpreter("/srv/python_helper.so") && !has_interpreter("pythonic"));
    }
}
