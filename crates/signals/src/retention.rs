//! Which rows are kept, as the recorder tells those who write them: `struct ts_retention`.

use crate::abi;

/// A probability in 16 bits, as rows carry it: eleven bits of mantissa below five of exponent, of
/// 2^32. Code 0 is certainty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Kept(u16);

const MANTISSA_BITS: u32 = 11;
const WHOLE: f64 = 4_294_967_296.0;

impl Kept {
    /// For certain.
    pub const ALWAYS: Self = Self(0);

    /// The nearest probability that there is a code for: from 2^-32 to 2047/2048, to 0.05 % where
    /// it is above 2^-22; certainty above that.
    #[must_use]
    pub fn nearest(probability: f64) -> Self {
        let of_all = probability.clamp(0.0, 1.0) * WHOLE;
        let exponent = ((of_all.max(1.0).log2() as u32 + 1).saturating_sub(MANTISSA_BITS)).min(31);
        let mantissa = (of_all / f64::from(1u32 << exponent)).round().max(1.0) as u32;
        if u64::from(mantissa) << exponent >= 1 << 32 {
            Self::ALWAYS
        } else if mantissa >> MANTISSA_BITS == 0 {
            Self((exponent << MANTISSA_BITS | mantissa) as u16)
        } else {
            Self(((exponent + 1) << MANTISSA_BITS | mantissa >> 1) as u16)
        }
    }

    /// What a row carries. A foreign code that stands for more than certainty is certainty.
    #[must_use]
    pub fn from_code(code: u16) -> Self {
        Self(code)
    }

    /// What a row carries.
    #[must_use]
    pub fn code(self) -> u16 {
        self.0
    }

    /// The probability that is really drawn with: more than 0, at most 1.
    #[must_use]
    pub fn probability(self) -> f64 {
        let mantissa = u64::from(self.0) & ((1 << MANTISSA_BITS) - 1);
        match mantissa << (self.0 >> MANTISSA_BITS) {
            0 => 1.0,
            of_all => (of_all as f64 / WHOLE).min(1.0),
        }
    }
}

/// What is kept of one kind of span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// All that took this or longer, in the unit of the rows' times; `None`: no span for that.
    pub always_from: Option<u64>,
    /// And of the others this part.
    pub others: Kept,
}

impl Retention {
    /// Every row.
    pub const ALL: Self = Self {
        always_from: None,
        others: Kept::ALWAYS,
    };
}

impl From<Retention> for abi::ts_retention {
    fn from(retention: Retention) -> Self {
        Self {
            always_from: retention.always_from.unwrap_or(u64::MAX),
            others: retention.others.code().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_ends_of_the_scale() {
        assert_eq!(Kept::nearest(1.0), Kept::ALWAYS);
        assert_eq!(Kept::nearest(0.99999), Kept::ALWAYS);
        assert_eq!(Kept::nearest(0.5).probability(), 0.5);
        assert_eq!(Kept::nearest(0.0).probability(), 1.0 / WHOLE);
        assert_eq!(Kept::ALWAYS.probability(), 1.0);
    }

    proptest! {
        #[test]
        fn a_probability_is_met_closely(exponent in 0.0f64..22.0) {
            let wanted = 2f64.powf(-exponent);
            let met = Kept::nearest(wanted).probability();
            prop_assert!((met / wanted - 1.0).abs() < 5e-4, "{} for {}", met, wanted);
        }

        #[test]
        fn every_code_is_a_probability(code: u16) {
            let probability = Kept::from_code(code).probability();
            prop_assert!(probability > 0.0 && probability <= 1.0);
        }
    }
}
