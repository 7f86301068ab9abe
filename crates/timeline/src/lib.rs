//! The flight recorder: what the whole stack did to one slow request, from packet to packet.
//!
//! [`Flight`] keeps the last seconds of events in the kernel's rings, finds slow requests as they
//! end, and has the window around them written while it goes on. [`Trace`] reads such a window,
//! [`tell`] makes the stories of its slow requests, [`picture()`] adds what a page draws of one, and
//! [`perfetto`] converts the window.

#![forbid(unsafe_code)]

mod about;
mod calls;
mod classes;
mod compilation;
mod flight;
mod keyed;
pub mod lines;
mod monitor;
mod pause;
pub mod perfetto;
mod picture;
mod probed;
mod request;
mod slow;
mod story;
mod thread_timeline;
mod ticks;
mod trace;
mod watched;
mod window;

pub use about::{About, Part, Reason, Thread};
pub use flight::{Figures, Flight, FlightError, Notice, Options, SpanProbes, ask_for_window};
pub use pause::Pause;
pub use picture::picture;
pub use request::Request;
pub use slow::Slow;
pub use story::{
    Cause, Gap, Interval, JvmMeanwhile, Kind, Lane, Picture, Stage, Stories, Story, analyze, ms,
};
pub use ticks::Function;
pub use trace::{Trace, TraceError};
