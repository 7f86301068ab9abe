//! Names of functions in C++: as people write them, from what compilers make of them.

use cpp_demangle::{DemangleOptions, Symbol};

/// `THD::query` of `_ZN3THD5queryEv`; `None` for what is no C++, and for a compiler's own splinters
/// of a function (`….cold`, `….part.0`).
pub fn plain_name(symbol: &str) -> Option<String> {
    let options = DemangleOptions::new().no_params().no_return_type();
    demangled(symbol, &options)
}

/// The same with its parameters, which tell functions of one name apart.
pub fn signature(symbol: &str) -> Option<String> {
    demangled(symbol, &DemangleOptions::new())
}

fn demangled(symbol: &str, options: &DemangleOptions) -> Option<String> {
    if !symbol.starts_with("_Z") || symbol.contains('.') {
        return None;
    }
    Symbol::new(symbol)
        .ok()?
        .demangle_with_options(options)
        .ok()
}

/// Whether the symbol is of a function that a person calls `name`: `query`, `THD::query`.
pub fn is_called(symbol: &str, name: &str) -> bool {
    // Its last part stands as it is in what the compiler made of it: few symbols go on from here.
    let last = name.rsplit("::").next().unwrap_or(name);
    symbol.contains(last)
        && plain_name(symbol).is_some_and(|plain| {
            plain == name
                || plain
                    .strip_suffix(name)
                    .is_some_and(|before| before.ends_with("::"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISPATCH: &str = "_Z16dispatch_command19enum_server_commandP3THDPcjb";
    const METHOD: &str = "_ZN3THD5queryEv";

    #[test]
    fn a_function_is_called_what_its_source_calls_it() {
        assert!(is_called(DISPATCH, "dispatch_command"));
        assert!(is_called(METHOD, "THD::query"));
        assert!(is_called(METHOD, "query"));
        assert!(!is_called(METHOD, "uery"));
        assert!(!is_called(DISPATCH, "command"));
        assert!(!is_called("dispatch_command", "dispatch_command"));
    }

    #[test]
    fn splinters_are_no_functions() {
        assert!(!is_called(&format!("{DISPATCH}.cold"), "dispatch_command"));
        assert!(!is_called(
            &format!("{DISPATCH}.part.0"),
            "dispatch_command"
        ));
    }

    #[test]
    fn a_signature_tells_what_it_takes() {
        assert_eq!(
            signature(DISPATCH).as_deref(),
            Some("dispatch_command(enum_server_command, THD*, char*, unsigned int, bool)")
        );
        assert_eq!(signature("main"), None);
    }
}
