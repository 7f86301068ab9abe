//! Where a file of the ledger lies: `host=…/hour=…/NNNNNN.parquet`.

use std::path::{Path, PathBuf};

const NS_PER_HOUR: i64 = 3_600_000_000_000;

/// What an unsealed file's name has after `.parquet`.
pub(crate) const UNSEALED: &str = "tmp";

/// The host's name as a folder's name holds it, on every file system and in every engine:
/// anything but ASCII letters, digits, `.`, `-` and `_` becomes `_`.
pub(crate) fn sanitized_host(host: &str) -> String {
    // Linux allows 64 bytes; a name of 255 with "host=" before it would not fit a folder's name.
    const LONGEST: usize = 200;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let host: String = host
        .chars()
        .take(LONGEST)
        .map(|c| if plain(c) { c } else { '_' })
        .collect();
    if host.is_empty() {
        "unknown".to_owned()
    } else {
        host
    }
}

/// The hour (UTC) of a time in ns since the Unix epoch, as in `2026-11-20T23`.
pub(crate) fn hour(unix_ns: i64) -> String {
    let hours = unix_ns.div_euclid(NS_PER_HOUR);
    let (year, month, day) = date(hours.div_euclid(24));
    format!("{year:04}-{month:02}-{day:02}T{:02}", hours.rem_euclid(24))
}

/// A time in ns since the Unix epoch, to the second and in UTC, as folders are named by it:
/// `2026-11-20T235901Z`.
#[must_use]
pub fn utc(unix_ns: i64) -> String {
    let seconds = unix_ns.div_euclid(1_000_000_000).rem_euclid(3600);
    format!("{}{:02}{:02}Z", hour(unix_ns), seconds / 60, seconds % 60)
}

/// Year, month and day of a number of days since the Unix epoch, in the Gregorian calendar.
///
/// Counts from 1 March of year 0, so that the leap day is the last of its year, in eras of 400
/// years (146,097 days), after which the calendar repeats.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months from March on have 153 days in every five.
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// The sealed path of the file of that number whose first row began at `start_ns`.
pub(crate) fn file(folder: &Path, host: &str, start_ns: i64, number: u64) -> PathBuf {
    let mut path = folder.join(format!("host={host}"));
    path.push(format!("hour={}", hour(start_ns)));
    path.push(format!("{number:06}.parquet"));
    path
}

/// The name under which the file is written until it is whole.
pub(crate) fn unsealed(sealed: &Path) -> PathBuf {
    sealed.with_extension(format!("parquet.{UNSEALED}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_those_of_the_calendar() {
        // Seconds as `date -u -d … +%s` gives them.
        for (seconds, expected) in [
            (0, "1970-01-01T00"),
            (-1, "1969-12-31T23"),
            (951_782_400, "2000-02-29T00"),
            (951_868_800, "2000-03-01T00"),
            (1_709_251_199, "2024-02-29T23"),
            (1_795_215_600, "2026-11-20T23"),
            (4_107_542_400, "2100-03-01T00"),
        ] {
            assert_eq!(hour(seconds * 1_000_000_000), expected, "{seconds}");
        }
        assert_eq!(utc(1_795_215_661 * 1_000_000_000), "2026-11-20T230101Z");
        // No time panics.
        assert_eq!(hour(i64::MAX), "2262-04-11T23");
        assert_eq!(hour(i64::MIN), "1677-09-21T00");
    }

    #[test]
    fn hosts_become_plain_names() {
        assert_eq!(sanitized_host("db1.example-x"), "db1.example-x");
        assert_eq!(sanitized_host("../a b/ü="), ".._a_b___");
        assert_eq!(sanitized_host(""), "unknown");
        assert_eq!(sanitized_host(&"x".repeat(999)).len(), 200);
    }

    #[test]
    fn an_unsealed_name_does_not_end_like_a_sealed_one() {
        let sealed = file(Path::new("L"), "db1", 0, 7);
        assert_eq!(
            sealed,
            Path::new("L/host=db1/hour=1970-01-01T00/000007.parquet")
        );
        assert_eq!(
            unsealed(&sealed),
            Path::new("L/host=db1/hour=1970-01-01T00/000007.parquet.tmp")
        );
    }
}
