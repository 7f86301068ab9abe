//! The terminal while the picture has it, and as it was afterwards.

use std::io::{self, Write, stdout};
use std::panic;
use std::time::Duration;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{Event, KeyEvent, KeyEventKind, poll, read};
use crossterm::style::{
    Attribute, Color, Print, SetAttribute, SetBackgroundColor, SetForegroundColor,
    force_color_output,
};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{execute, queue};
use tailscope_trace::Cause;

use super::line::{Ink, Line};

/// A terminal in our hands; given back when this is dropped, also by a panic.
#[must_use]
pub struct Terminal {
    keys: bool,
}

/// What came from the person.
pub enum Input {
    Key(KeyEvent),
    Resized,
}

impl Terminal {
    pub fn take() -> io::Result<Self> {
        // A panic's message would be lost with the screen that it is written on.
        let tell = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            give_back();
            tell(info);
        }));
        // Whether there are colours the view decides, from NO_COLOR and from keys.
        force_color_output(true);
        enable_raw_mode()?;
        let terminal = Self { keys: true };
        execute!(stdout(), EnterAlternateScreen, Hide)?;
        Ok(terminal)
    }

    /// Columns and rows.
    pub fn size() -> (usize, usize) {
        size().map_or((80, 24), |(columns, rows)| (columns.into(), rows.into()))
    }

    /// What came since the last time. Where keys can't be read, signals still end it.
    pub fn input(&mut self) -> Option<Input> {
        while self.keys {
            let event = match poll(Duration::ZERO) {
                Ok(true) => read(),
                Ok(false) => return None,
                Err(e) => Err(e),
            };
            match event {
                Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                    return Some(Input::Key(key));
                }
                Ok(Event::Resize(..)) => return Some(Input::Resized),
                Ok(_) => {}
                Err(_) => self.keys = false,
            }
        }
        None
    }

    /// Shows a picture.
    pub fn show(&self, lines: &[Line], colour: bool) -> io::Result<()> {
        let mut out = io::BufWriter::new(stdout().lock());
        queue!(out, BeginSynchronizedUpdate)?;
        for (row, line) in (0..).zip(lines) {
            // Cleared first: after a full line it would take the line's last letter.
            queue!(out, MoveTo(0, row), Clear(ClearType::UntilNewLine))?;
            for (text, ink) in &line.0 {
                dip(&mut out, *ink, colour)?;
                queue!(out, Print(text), SetAttribute(Attribute::Reset))?;
            }
        }
        if lines.len() < Self::size().1 {
            let below = MoveTo(0, lines.len() as u16);
            queue!(out, below, Clear(ClearType::FromCursorDown))?;
        }
        queue!(out, EndSynchronizedUpdate)?;
        out.flush()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back();
    }
}

fn give_back() {
    let _ = execute!(stdout(), Show, LeaveAlternateScreen);
    let _ = disable_raw_mode();
}

fn dip(out: &mut impl Write, ink: Ink, colour: bool) -> io::Result<()> {
    match ink {
        Ink::Plain => Ok(()),
        Ink::Strong => queue!(out, SetAttribute(Attribute::Bold)),
        Ink::Title => queue!(out, SetAttribute(Attribute::Reverse)),
        Ink::Part(_) if !colour => Ok(()),
        Ink::Part(part) => queue!(
            out,
            SetForegroundColor(Color::AnsiValue(16)),
            SetBackgroundColor(Color::AnsiValue(paint(part)))
        ),
    }
}

/// A colour of the 256 that terminals have: waiting for a CPU in reds, blocking in blues and
/// greens, what comes from the machine in yellows, the span's own work in grey.
fn paint(part: Option<Cause>) -> u8 {
    match part {
        Some(Cause::Runqueue) => 203,
        Some(Cause::Preempted) => 217,
        Some(Cause::Throttled) => 170,
        Some(Cause::Lock) => 75,
        Some(Cause::Io) => 71,
        Some(Cause::Network) => 80,
        Some(Cause::Sleep) => 110,
        Some(Cause::Irq) => 220,
        Some(Cause::SoftirqNet) => 178,
        Some(Cause::SoftirqTimer) => 186,
        Some(Cause::SoftirqOther) => 180,
        Some(Cause::Fault) => 208,
        Some(Cause::Steal) => 141,
        Some(Cause::Queue) => 216,
        Some(Cause::Stopped) => 133,
        Some(Cause::Reclaim) => 172,
        Some(Cause::Tcp) => 44,
        Some(Cause::Accept) => 223,
        Some(Cause::Unknown) => 246,
        Some(Cause::Downstream) => 105,
        None => 250,
    }
}
