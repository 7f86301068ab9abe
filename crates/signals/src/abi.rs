//! `sdk/c/tailscope_abi.h`, as Rust sees it. The words on each item are in the header.

#![allow(missing_docs, non_camel_case_types, non_upper_case_globals)]
#![allow(clippy::all, clippy::undocumented_unsafe_blocks)]

include!(concat!(env!("OUT_DIR"), "/abi.rs"));
