//! What a report says that the samples don't.

use super::Written;
use crate::dte::Tolerance;
use crate::effect::Effect;
use crate::placement::Placement;
use crate::signal::Signal;

/// How it was observed.
#[derive(Debug)]
pub(crate) struct Context<'r> {
    pub(crate) counters: &'r [Signal],
    pub(crate) tags: &'r [Signal],
    pub(crate) placement: &'r Placement,
    pub(crate) clock_hz: u64,
    pub(crate) seconds: f64,
    pub(crate) end: String,
    pub(crate) period: Option<u64>,
    pub(crate) preemption_noticed: bool,
    /// It sleeps between samples.
    pub(crate) sleeps: bool,
    pub(crate) tolerance: Tolerance,
    pub(crate) most: Option<f64>,
    pub(crate) progress: String,
    pub(crate) effect: Option<Effect>,
    pub(crate) budget: Option<f64>,
    pub(crate) raw: Option<Written>,
}
