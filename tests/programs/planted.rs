//! As `tests/c/planted.c`, in Rust: `planted MODE REQUESTS MICROSECONDS`, with the modes `cpu`,
//! `sleep` and `lock`.

use std::hint::black_box;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::Duration;

unsafe extern "C" {
    fn clock_gettime(clock: i32, time: *mut [i64; 2]) -> i32;
}

/// The thread's CPU time: other threads can't make the planted function do less.
#[inline(never)]
fn cpu_time() -> Duration {
    const CLOCK_THREAD_CPUTIME_ID: i32 = 3;
    let mut time = [0; 2];
    // SAFETY: on 64-bit Linux a timespec is two words, which the call fills.
    unsafe { clock_gettime(CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time[0] as u64, time[1] as u32)
}

struct Shop {
    mode: String,
    planted: Duration,
    stock: Arc<Mutex<u64>>,
    holder: Sender<Sender<()>>,
}

impl Shop {
    #[inline(never)]
    fn usual_work(&self) -> u64 {
        (0..60_000).fold(1, |sum: u64, n| {
            black_box(sum.wrapping_mul(31).wrapping_add(n))
        })
    }

    #[inline(never)]
    fn planted_cpu(&self) -> u64 {
        let (start, mut sum) = (cpu_time(), 1u64);
        while cpu_time() - start < self.planted {
            for n in 0..30_000 {
                sum = black_box(sum.wrapping_mul(37).wrapping_add(n));
            }
        }
        sum
    }

    #[inline(never)]
    fn planted_sleep(&self) -> u64 {
        sleep(self.planted);
        black_box(1)
    }

    #[inline(never)]
    fn planted_lock(&self) -> u64 {
        let mut stock = self.stock.lock().expect("nobody panics");
        *stock += 1;
        black_box(*stock)
    }

    /// Another thread has the lock from now on, for as long as is planted.
    fn have_it_held(&self) {
        let (held, is_held) = channel();
        self.holder.send(held).expect("the holder runs");
        is_held.recv().expect("the holder answers");
    }
}

/// The span.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn handle_request(shop: &Shop, planted: bool) -> u64 {
    let usual = shop.usual_work();
    let more = match shop.mode.as_str() {
        "cpu" if planted => shop.planted_cpu(),
        "sleep" if planted => shop.planted_sleep(),
        "lock" if planted => shop.planted_lock(),
        _ => 0,
    };
    black_box(usual.wrapping_add(more))
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let planted = Duration::from_micros(arguments[3].parse().expect("a number"));
    let stock = Arc::new(Mutex::new(0));
    let (holder, asked) = channel::<Sender<()>>();
    let held = Arc::clone(&stock);
    spawn(move || {
        for answer in asked {
            let _stock = held.lock().expect("nobody panics");
            let _ = answer.send(());
            sleep(planted);
        }
    });
    let shop = Shop {
        mode: arguments[1].clone(),
        planted,
        stock,
        holder,
    };
    for n in 0..arguments[2].parse::<u64>().expect("a number") {
        let is_planted = n % 50 == 7;
        if is_planted && shop.mode == "lock" {
            shop.have_it_held();
        }
        handle_request(&shop, is_planted);
        if n % 8 == 0 {
            sleep(Duration::from_micros(50));
        }
    }
}
