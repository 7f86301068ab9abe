//! The names that perf gives to events of any CPU: `instructions`, `L1-dcache-load-misses`.

/// `PERF_TYPE_HARDWARE`.
const HARDWARE: u32 = 0;
/// `PERF_TYPE_HW_CACHE`.
const CACHE: u32 = 3;

/// By `PERF_COUNT_HW_…`, with perf's other name for it.
const EVENTS: [(&str, &str); 10] = [
    ("cycles", "cpu-cycles"),
    ("instructions", "instructions"),
    ("cache-references", "cache-references"),
    ("cache-misses", "cache-misses"),
    ("branches", "branch-instructions"),
    ("branch-misses", "branch-misses"),
    ("bus-cycles", "bus-cycles"),
    ("stalled-cycles-frontend", "idle-cycles-frontend"),
    ("stalled-cycles-backend", "idle-cycles-backend"),
    ("ref-cycles", "ref-cycles"),
];

/// By `PERF_COUNT_HW_CACHE_…`.
const CACHES: [&str; 7] = [
    "L1-dcache",
    "L1-icache",
    "LLC",
    "dTLB",
    "iTLB",
    "branch",
    "node",
];

/// What is done to a cache: `PERF_COUNT_HW_CACHE_OP_…`, plural and singular.
const OPERATIONS: [(&str, &str); 3] = [
    ("loads", "load"),
    ("stores", "store"),
    ("prefetches", "prefetch"),
];

/// Events for which perf itself has only another name.
const ALREADY_THERE: [&str; 2] = ["branch-loads", "branch-load-misses"];

/// An event's name in perf's spelling, its type and its config.
pub(super) fn find(name: &str) -> Option<(String, u32, u64)> {
    all()
        .find(|(known, other, ..)| {
            known.eq_ignore_ascii_case(name) || other.eq_ignore_ascii_case(name)
        })
        .map(|(known, _, kind, config)| (known, kind, config))
}

/// Every name.
pub(super) fn names() -> impl Iterator<Item = String> {
    all()
        .map(|(name, ..)| name)
        .filter(|name| !ALREADY_THERE.contains(&name.as_str()))
}

/// Name, another name, type, config.
fn all() -> impl Iterator<Item = (String, String, u32, u64)> {
    let plain = (0u64..)
        .zip(EVENTS)
        .map(|(number, (name, other))| (name.to_owned(), other.to_owned(), HARDWARE, number));
    let caches = (0u64..).zip(CACHES).flat_map(|(cache, of)| {
        (0u64..)
            .zip(OPERATIONS)
            .flat_map(move |(operation, (many, one))| {
                let config = cache | operation << 8;
                let name = format!("{of}-{many}");
                let misses = format!("{of}-{one}-misses");
                [
                    (name.clone(), name, CACHE, config),
                    (misses.clone(), misses, CACHE, config | 1 << 16),
                ]
            })
    });
    plain.chain(caches)
}
