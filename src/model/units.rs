// SPDX-License-Identifier: GPL-2.0-only
//! Durations and sizes as people write them, parsed without guessing.

use std::time::Duration;

/// Splits "100ms" into digits and suffix.
fn split(text: &str) -> Result<(u64, &str), String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    if number.is_empty() {
        return Err("must begin with a digit".to_owned());
    }
    let number = number.parse().map_err(|_| "is too large".to_owned())?;
    Ok((number, suffix))
}

/// Parses a duration such as `500us`, `100ms`, `1s`, `2m` or `1h`.
///
/// # Errors
/// A text that says what is wrong, if there is no digit, no or an unknown
/// unit, or a result beyond 64 bits of nanoseconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, suffix) = split(text)?;
    let unit: u64 = match suffix {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "" => return Err("needs a unit: us, ms, s, m or h".to_owned()),
        other => {
            return Err(format!(
                "has an unknown unit '{other}': use us, ms, s, m or h"
            ));
        }
    };
    let nanos = number
        .checked_mul(unit)
        .ok_or_else(|| "is too large".to_owned())?;
    Ok(Duration::from_nanos(nanos))
}

/// The 1024ths that the programs calculate with, of a percentage from 0 to 100; rounded down.
pub fn share(percent: u64) -> u64 {
    percent * 1024 / 100
}

/// The percentage that [`share`] was given.
pub fn percent(share: u64) -> u64 {
    (share * 100).div_ceil(1024)
}

/// Parses a size such as `16M`, `64K`, `1GiB` or `4096` (bytes); powers of 1024.
///
/// # Errors
/// A text that says what is wrong, if there is no digit, an unknown unit, or a
/// result beyond 64 bits.
pub fn size(text: &str) -> Result<u64, String> {
    let (number, suffix) = split(text)?;
    let shift = match suffix {
        "" | "B" => 0,
        "K" | "k" | "KB" | "kB" | "KiB" | "kiB" => 10,
        "M" | "MB" | "MiB" => 20,
        "G" | "GB" | "GiB" => 30,
        "T" | "TB" | "TiB" => 40,
        _ => return Err(format!("has an unknown unit '{suffix}': use K, M, G or T")),
    };
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| "is too large".to_owned())
}

/// A size for people: `16M`, `1.5G`, `812K`, `0`.
pub fn show_size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let mut unit = 0;
    while unit + 1 < UNITS.len() && bytes >> (10 * (unit + 1)) != 0 {
        unit += 1;
    }
    let whole = bytes >> (10 * unit);
    let rest = bytes & ((1 << (10 * unit)) - 1);
    if unit == 0 || whole >= 10 || rest == 0 {
        return format!("{whole}{}", UNITS[unit]);
    }
    // One decimal below ten; shifted before multiplying, so it cannot overflow.
    let tenths = ((rest >> (10 * (unit - 1))) * 10) >> 10;
    format!("{whole}.{tenths}{}", UNITS[unit])
}

/// A size for people that is no less: what has to be reached.  `81M` for anything above 80M.
pub fn show_size_up(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["", "K", "M", "G", "T"];
    // Two digits at least, so that it is no more than a tenth above.
    let unit = (1..UNITS.len())
        .rev()
        .find(|unit| bytes >> (10 * unit) >= 10);
    let unit = unit.unwrap_or(0);
    let whole = bytes.div_ceil(1 << (10 * unit));
    match whole << (10 * unit) == bytes {
        true => show_size(bytes),
        false => format!("{whole}{}", UNITS[unit]),
    }
}

/// A duration for people: `100ms`, `1s`, `1.25s`, `750us`.
pub fn show_duration(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{}us", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{}ms", ns / 1_000_000),
        _ if ns % 1_000_000_000 < 5_000_000 => format!("{}s", ns / 1_000_000_000),
        _ => format!(
            "{}.{:02}s",
            ns / 1_000_000_000,
            ns % 1_000_000_000 / 10_000_000
        ),
    }
}

/// How long something has been going on, for people: `90s`, `75min`, `30h`.
pub fn show_age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}min", seconds / 60),
        _ => format!("{}h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_whole() {
        let ages = [0, 119, 120, 3_599, 7_199, 7_200, 90_000].map(show_age);
        assert_eq!(ages, ["0s", "119s", "2min", "59min", "119min", "2h", "25h"]);
    }

    #[test]
    fn a_percentage_comes_back_from_its_share() {
        for given in 0..=100 {
            assert_eq!(percent(share(given)), given);
        }
        assert_eq!((share(0), share(50), share(100)), (0, 512, 1024));
    }

    #[test]
    fn durations_in_every_unit() {
        assert_eq!(duration("500us"), Ok(Duration::from_micros(500)));
        assert_eq!(duration("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(duration("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("1h"), Ok(Duration::from_secs(3600)));
        assert_eq!(duration("0ms"), Ok(Duration::ZERO));
    }

    #[test]
    fn durations_that_are_none() {
        for text in [
            "", "ms", "10", "10x", "-1s", "1 s", "1s ", "1.5s", "0x10ms", "１s",
        ] {
            assert!(duration(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn durations_do_not_overflow() {
        assert_eq!(
            duration("18446744073709551615ns"),
            Ok(Duration::from_nanos(u64::MAX))
        );
        assert!(duration("18446744073709551616ns").is_err());
        assert!(duration("18446744074s").is_err());
    }

    #[test]
    fn sizes_in_every_unit() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("4096B"), Ok(4096));
        assert_eq!(size("64K"), Ok(65536));
        assert_eq!(size("16M"), Ok(16 << 20));
        assert_eq!(size("16MiB"), Ok(16 << 20));
        assert_eq!(size("1GB"), Ok(1 << 30));
        assert_eq!(size("0"), Ok(0));
    }

    #[test]
    fn sizes_that_are_none() {
        for text in [
            "", "M", "1+1", "10x", "-1", "1 M", "1M ", "1.5M", "1<<22", "iB", "1iB", "1KM",
        ] {
            assert!(size(text).is_err(), "{text:?}");
        }
    }

    /// The proposal's FROM_MB() wrapped at 32 bits: 4096 MB became 0.
    #[test]
    fn sizes_do_not_wrap() {
        assert_eq!(size("4096M"), Ok(4 << 30));
        assert_eq!(size("4194304M"), Ok(4 << 40));
        assert_eq!(size("16777215T"), Ok(16_777_215 << 40));
        assert!(size("16777216T").is_err());
        assert!(size("18446744073709551616").is_err());
    }

    #[test]
    fn sizes_for_people() {
        assert_eq!(show_size(0), "0");
        assert_eq!(show_size(4096), "4K");
        assert_eq!(show_size(16 << 20), "16M");
        assert_eq!(show_size(3 << 29), "1.5G");
        assert_eq!(show_size(u64::MAX), "15E");
    }

    /// Whoever writes it into a limit has reached it, and not gone far beyond.
    #[test]
    fn a_size_that_has_to_be_reached_is_no_less() {
        assert_eq!(show_size_up(80 << 20), "80M");
        assert_eq!(show_size_up((80 << 20) + 1), "81M");
        assert_eq!(show_size_up((2 << 30) + 1), "2049M");
        for bytes in (0..1 << 45).step_by((1 << 30) + 4096 * 17 + 5) {
            let text = show_size_up(bytes);
            let up = size(&text).unwrap();
            assert!(bytes <= up && up <= bytes + bytes / 10, "{bytes}: {text}");
        }
    }

    #[test]
    fn durations_for_people() {
        assert_eq!(show_duration(0), "0us");
        assert_eq!(show_duration(750_000), "750us");
        assert_eq!(show_duration(100_000_000), "100ms");
        assert_eq!(show_duration(1_000_400_000), "1s");
        assert_eq!(show_duration(1_250_000_000), "1.25s");
    }
}
