//! Generates Rust's view of the memory that kernel, recorder and measured process share.

use std::path::PathBuf;

fn main() {
    let header = "../../sdk/c/tailscope_abi.h";
    println!("cargo::rerun-if-changed={header}");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    bindgen::Builder::default()
        .header(header)
        .allowlist_item("(ts_|TS_).*")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .layout_tests(false)
        .derive_default(true)
        .generate()
        .expect("clang reads tailscope_abi.h: is libclang installed? (scripts/setup installs it)")
        .write_to_file(out.join("abi.rs"))
        .expect("OUT_DIR can be written");
}
