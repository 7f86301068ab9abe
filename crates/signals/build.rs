//! Generates Rust's view of the memory that kernel, recorder and measured process share.

use std::path::PathBuf;

fn main() {
    generate("../../sdk/c/tailscope_abi.h", "(ts_|TS_).*", "abi.rs");
    generate("include/tailscope_event.h", "(tl_|TL_).*", "event_abi.rs");
    generate("include/tailscope_slice.h", "(sl_|SL_).*", "slice_abi.rs");
    generate(
        "include/tailscope_hazard.h",
        "(ts_hazard|TS_HAZARD).*",
        "hazard_abi.rs",
    );
}

fn generate(header: &str, items: &str, into: &str) {
    println!("cargo::rerun-if-changed={header}");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    bindgen::Builder::default()
        .header(header)
        .allowlist_item(items)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .layout_tests(false)
        .derive_default(true)
        .generate()
        .unwrap_or_else(|e| {
            panic!("clang reads {header}: is libclang installed? (scripts/setup installs it): {e}")
        })
        .write_to_file(out.join(into))
        .expect("OUT_DIR can be written");
}
