//! Compiles the BPF programs with clang and generates Rust's view of what they share with us.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let libbpf = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys says where its headers are");
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the architecture");
    let kernel_arch = match arch.as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        other => panic!("no register layout for {other}: see src/bpf/types.h"),
    };
    println!("cargo::rerun-if-changed=src/bpf");
    println!("cargo::rerun-if-changed=../../sdk/c/tailscope_abi.h");
    println!("cargo::rerun-if-changed=../signals/include");
    println!("cargo::rerun-if-env-changed=CLANG");

    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    for name in [
        "tailscope",
        "probe",
        "running",
        "timeline",
        "floor",
        "own_level",
        "hazard",
        "cost",
    ] {
        let status = Command::new(&clang)
            .args([
                "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Werror",
            ])
            .args([
                "-Wno-unused-parameter",
                &format!("-D__TARGET_ARCH_{kernel_arch}"),
            ])
            .args(["-I", "../../sdk/c", "-I", "../signals/include"])
            .args(["-isystem", &libbpf])
            // Debian's headers of this machine, and of another that is compiled for.
            .args(["-idirafter", &format!("/usr/include/{arch}-linux-gnu")])
            .args(["-idirafter", &format!("/usr/{arch}-linux-gnu/include")])
            .args(["-c", &format!("src/bpf/{name}.bpf.c"), "-o"])
            .arg(out.join(format!("{name}.bpf.o")))
            .status()
            .unwrap_or_else(|e| panic!("{clang} can't be run ({e}): scripts/setup installs it"));
        assert!(status.success(), "{clang} rejects src/bpf/{name}.bpf.c");
    }

    bindgen::Builder::default()
        .header_contents(
            "shared_for_rust.h",
            concat!(
                "#include \"../../sdk/c/tailscope_abi.h\"\n",
                "#include \"src/bpf/shared.h\"\n",
                "#include \"src/bpf/timeline.h\"\n",
                "#include \"src/bpf/watched_table.h\"\n",
                "#include \"src/bpf/hazard.h\"\n",
                "#include \"src/bpf/pid_namespace_config.h\"\n",
            ),
        )
        .allowlist_file(
            "(.*/)?src/bpf/(shared|timeline|hazard|pid_namespace_config|watched_table).h",
        )
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .layout_tests(false)
        .derive_default(true)
        .generate()
        .expect("clang reads shared.h: is libclang installed? (scripts/setup installs it)")
        .write_to_file(out.join("shared.rs"))
        .expect("OUT_DIR can be written");
}
