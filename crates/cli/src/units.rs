//! Quantities as people read them. How they type them is in `tailscope_record::quantity`.

/// A length of time in the unit that suits it: `740 ns`, `12.3 µs`, `4.10 ms`, `2.00 s`.
pub fn time(ns: u64) -> String {
    let ns = ns as f64;
    match ns {
        // The thresholds are where it would be rounded up into the next unit.
        n if n < 1e3 => format!("{n} ns"),
        n if n < 999_950.0 => format!("{:.1} µs", n / 1e3),
        n if n < 999_995_000.0 => format!("{:.2} ms", n / 1e6),
        n => format!("{:.2} s", n / 1e9),
    }
}

/// Bytes: `812 B`, `1.4 MB`.
pub fn bytes(count: u64) -> String {
    let n = count as f64;
    match n {
        n if n < 1e3 => format!("{count} B"),
        n if n < 999_950.0 => format!("{:.1} kB", n / 1e3),
        n if n < 999_950_000.0 => format!("{:.1} MB", n / 1e6),
        _ => format!("{:.2} GB", n / 1e9),
    }
}

/// A count with its thousands apart: `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate in counts a second: `812 /s`, `1.23 M/s`.
pub fn rate(per_second: f64) -> String {
    match per_second {
        r if r >= 1e9 => format!("{:.3} G/s", r / 1e9),
        r if r >= 1e6 => format!("{:.3} M/s", r / 1e6),
        r if r >= 1e3 => format!("{:.3} k/s", r / 1e3),
        r => format!("{r:.3} /s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_short() {
        assert_eq!(
            [time(740), time(12_345), time(4_100_000)],
            ["740 ns", "12.3 µs", "4.10 ms"]
        );
        assert_eq!([time(999_960), time(999_999_999)], ["1.00 ms", "1.00 s"]);
        assert_eq!([bytes(999_999), bytes(999_999_999)], ["1.0 MB", "1.00 GB"]);
        assert_eq!([count(7), count(1_234_567)], ["7", "1,234,567"]);
        assert_eq!([bytes(812), bytes(1_400_000)], ["812 B", "1.4 MB"]);
    }
}
