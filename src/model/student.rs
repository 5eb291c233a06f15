// SPDX-License-Identifier: GPL-2.0-only
//! Student's distribution: how far a mean of few values is from the truth by chance.

/// Logarithm of the gamma function, to ten digits (Lanczos, 1964).
fn log_gamma(x: f64) -> f64 {
    const SERIES: [f64; 6] = [
        76.180_091_729_471_46,
        -86.505_320_329_416_77,
        24.014_098_240_830_91,
        -1.231_739_572_450_155,
        1.208_650_973_866_179e-3,
        -0.539_523_938_495_3e-5,
    ];
    let shifted = x + 5.5;
    let head = (x + 0.5) * shifted.ln() - shifted;
    let mut at = x;
    let mut sum = 1.000_000_000_190_015;
    for term in SERIES {
        at += 1.0;
        sum += term / at;
    }
    head + (2.506_628_274_631_000_5 * sum / x).ln()
}

/// The continued fraction of the incomplete beta function (Lentz's way).
fn fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let off = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / off(1.0 - (a + b) * x / (a + 1.0));
    let mut value = d;
    for step in 1..1000 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut last = 1.0;
        for term in [even, odd] {
            d = 1.0 / off(1.0 + term * d);
            c = off(1.0 + term / c);
            last = d * c;
            value *= last;
        }
        if (last - 1.0).abs() < 1e-12 {
            break;
        }
    }
    value
}

/// The regularized incomplete beta function.
fn beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    let front = log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * x.ln() + b * (1.0 - x).ln();
    // The fraction converges fast on this side of the mean only.
    if x < (a + 1.0) / (a + b + 2.0) {
        front.exp() * fraction(x, a, b) / a
    } else {
        1.0 - front.exp() * fraction(1.0 - x, b, a) / b
    }
}

/// How often a value is further from the mean than `off` standard errors, up or down.
pub fn both_tails(off: f64, freedom: f64) -> f64 {
    let freedom = freedom.max(0.1);
    beta(freedom / (freedom + off * off), freedom / 2.0, 0.5)
}

/// The standard errors that are exceeded that often.
pub fn bound(chance: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    while both_tails(high, freedom) > chance && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if both_tails(middle, freedom) > chance {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed tables.
    #[test]
    fn tails_are_those_of_the_tables() {
        for (freedom, chance, wanted) in [
            (1.0, 0.05, 12.706),
            (2.0, 0.01, 9.925),
            (3.0, 0.01, 5.841),
            (7.0, 0.001, 5.408),
            (10.0, 0.05, 2.228),
            (30.0, 0.01, 2.750),
            (60.0, 0.001, 3.460),
            (1000.0, 0.05, 1.962),
            (1000.0, 0.001, 3.300),
        ] {
            let found = bound(chance, freedom);
            assert!(
                (found - wanted).abs() < 6e-4,
                "{freedom} {chance}: {found}, not {wanted}"
            );
            let back = both_tails(found, freedom);
            assert!((back / chance - 1.0).abs() < 1e-6, "{freedom}: {back}");
        }
        assert_eq!(both_tails(0.0, 5.0), 1.0);
        // Of one degree it is Cauchy's: exact.
        let exact = 1.0 - 2.0 / std::f64::consts::PI * 3.0_f64.atan();
        assert!((both_tails(3.0, 1.0) - exact).abs() < 1e-9);
    }
}
