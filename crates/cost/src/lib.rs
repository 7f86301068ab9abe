//! What observing costs a program: measured on this machine, predicted for a program, and checked.
//!
//! [`calibrate`] times one hit of each kind of hook that this machine has. [`Calibration`] keeps
//! the result with the [`Identity`] of the machine, and refuses to be used on another one.
//! [`command`] reads what a command line would hook, [`count`] counts how often that is hit, and
//! [`predict`] puts both together. [`verify`] runs the command in random phases and compares.
//! [`budget`] holds a budget of overhead while an observer runs.
//!
//! After Akiyama and Hirofuchi (ROSS 2017): a program that is hit N times takes T = T0 + α·N.

#![forbid(unsafe_code)]

pub mod advise;
pub mod budget;
pub mod calibrate;
mod calibration;
pub mod command;
pub mod count;
pub mod duty_cycle;
mod identity;
mod kind;
pub mod observers;
pub mod phases;
pub mod predict;
pub mod program;
mod sdk_recorder;
pub mod statistics;
pub mod target;
pub mod verify;

pub use calibrate::recorders::obey;
pub use calibrate::{Absent, Options, calibrate};
pub use calibration::{Calibration, CalibrationError, KindCost};
pub use identity::Identity;
pub use kind::{KINDS, Kind};
pub use statistics::Estimate;
