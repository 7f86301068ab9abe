//! A fork in mid-span, as the end-to-end tests record it: the span that is open belongs to the parent,
//! and the child is like a program that has just started.

use tailscope_sdk::Span;

const SPANS: i64 = 1000;

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(code: i32) -> !;
}

fn run(name: &'static str) {
    for id in 0..SPANS {
        Span::begin(name).end_with_id(id);
    }
}

fn main() {
    let outer = Span::begin("outer");
    // SAFETY: this program has one thread.
    let child = unsafe { fork() };
    if child == 0 {
        drop(outer);
        run("child");
        // SAFETY: ends the child as it is.
        unsafe { _exit(0) };
    }
    outer.end();
    run("parent");
    // SAFETY: waits for our child, and asks for nothing about it.
    unsafe { waitpid(child, std::ptr::null_mut(), 0) };
    println!("{{\"parent\": {}, \"child\": {child}}}", std::process::id());
}
