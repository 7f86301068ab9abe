//! What is looked at and how, and what keys change about it.

use std::collections::{HashMap, VecDeque};

use clap::ValueEnum;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use tailscope_trace::CauseSet;

use super::bar;
use super::snapshot::{Figures, Kind, Period, Snapshot};

/// So many pictures back goes the line of a kind's p99.
const HISTORY: usize = 300;

/// A column that can be sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Column {
    /// By name, from a to z.
    Name,
    /// Most spans a second first.
    Rate,
    /// Slowest first.
    P50,
    /// Slowest first.
    P99,
    /// Slowest first.
    #[value(name = "p99.9")]
    P999,
}

impl Column {
    const ALL: [Self; 5] = [Self::Name, Self::Rate, Self::P50, Self::P99, Self::P999];

    fn moved(self, by: usize) -> Self {
        let place = Self::ALL.iter().position(|c| *c == self).unwrap_or(0);
        Self::ALL[(place + by) % Self::ALL.len()]
    }
}

/// What fills the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// All kinds.
    List,
    /// The chosen one.
    Detail,
    /// What the letters and keys mean.
    Help,
}

/// Whether the person wants to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    GoOn,
    Quit,
}

/// All that the picture shows.
#[derive(Debug)]
pub struct View {
    /// What is recorded, in words.
    pub subject: String,
    /// The causes that this machine measures.
    pub measured: CauseSet,
    pub snapshot: Snapshot,
    /// p99 of the last seconds by kind, the latest last.
    pub history: HashMap<String, VecDeque<u64>>,
    /// Rows and measurements that were lost.
    pub lost: u64,
    pub notice: String,
    pub page: Page,
    /// The first line of the help that is shown, where not all of it fits.
    pub help_from: usize,
    pub sort: Column,
    pub reversed: bool,
    pub filter: String,
    /// The filter is being typed.
    pub typing: bool,
    /// The name of the chosen kind; the first one where it is not there.
    pub chosen: String,
    pub frozen: bool,
    pub period: Period,
    /// Bars of the tail, not of all spans.
    pub tail: bool,
    /// Whether there are functions.
    pub stacks: bool,
    pub colour: bool,
}

impl View {
    pub fn new(subject: String, measured: CauseSet, sort: Column, filter: String) -> Self {
        Self {
            subject,
            measured,
            snapshot: Snapshot::default(),
            history: HashMap::new(),
            lost: 0,
            notice: String::new(),
            page: Page::List,
            help_from: 0,
            sort,
            reversed: false,
            filter,
            typing: false,
            chosen: String::new(),
            frozen: false,
            period: Period::Recent,
            tail: true,
            stacks: false,
            colour: false,
        }
    }

    /// Takes new figures, unless it is frozen.
    pub fn update(&mut self, snapshot: Snapshot) {
        for kind in &snapshot.kinds {
            let p99 = kind.of(Period::Recent).quantiles.map_or(0, |q| q[1]);
            let line = self.history.entry(kind.name.clone()).or_default();
            line.push_back(p99);
            if line.len() > HISTORY {
                line.pop_front();
            }
        }
        if !self.frozen {
            self.snapshot = snapshot;
        }
    }

    /// The kinds that are shown, in their order.
    pub fn kinds(&self) -> Vec<&Kind> {
        let wanted = self.filter.to_lowercase();
        let mut kinds: Vec<_> = self
            .snapshot
            .kinds
            .iter()
            .filter(|kind| kind.name.to_lowercase().contains(&wanted))
            .collect();
        kinds.sort_by(|a, b| {
            let (of_a, of_b) = (a.of(self.period), b.of(self.period));
            let quantile = |place: usize| {
                let of = |figures: &Figures| figures.quantiles.map_or(0, |q| q[place]);
                of(of_b).cmp(&of(of_a))
            };
            let order = match self.sort {
                Column::Name => a.name.cmp(&b.name),
                Column::Rate => of_b.rate.total_cmp(&of_a.rate),
                Column::P50 => quantile(0),
                Column::P99 => quantile(1),
                Column::P999 => quantile(2),
            };
            if self.reversed {
                order.reverse()
            } else {
                order
            }
        });
        kinds
    }

    /// The place of the chosen one among those shown.
    pub fn chosen(&self) -> usize {
        let is_chosen = |kind: &&Kind| kind.name == self.chosen;
        self.kinds().iter().position(is_chosen).unwrap_or(0)
    }

    fn choose(&mut self, by: isize) {
        let kinds = self.kinds();
        let place = self.chosen().saturating_add_signed(by);
        if let Some(kind) = kinds.get(place.min(kinds.len().saturating_sub(1))) {
            self.chosen = kind.name.clone();
        }
    }

    /// Up and down: through the kinds, or through the help.
    fn go(&mut self, by: isize) {
        if self.page == Page::Help {
            let last = bar::parts().count();
            self.help_from = self.help_from.saturating_add_signed(by).min(last);
        } else {
            self.choose(by);
        }
    }

    /// A key was pressed.
    pub fn press(&mut self, key: KeyEvent) -> Wish {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c' | 'd') => Wish::Quit,
                _ => Wish::GoOn,
            };
        }
        if self.typing {
            self.write(key.code);
            return Wish::GoOn;
        }
        match key.code {
            KeyCode::Char('q') => return Wish::Quit,
            KeyCode::Char('?' | 'h') if self.page != Page::Help => self.page = Page::Help,
            KeyCode::Esc if self.page == Page::List => self.filter.clear(),
            KeyCode::Esc | KeyCode::Char('?' | 'h') => self.page = Page::List,
            KeyCode::Enter if self.page == Page::Detail => self.page = Page::List,
            KeyCode::Enter => {
                self.choose(0);
                self.page = Page::Detail;
            }
            KeyCode::Up | KeyCode::Char('k') => self.go(-1),
            KeyCode::Down | KeyCode::Char('j') => self.go(1),
            KeyCode::PageUp => self.go(-10),
            KeyCode::PageDown => self.go(10),
            KeyCode::Home => self.go(-1000),
            KeyCode::End => self.go(1000),
            KeyCode::Char('s' | '>') | KeyCode::Right => self.sort = self.sort.moved(1),
            KeyCode::Char('<') | KeyCode::Left => {
                self.sort = self.sort.moved(Column::ALL.len() - 1)
            }
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Char('/') => {
                self.page = Page::List;
                self.typing = true;
            }
            KeyCode::Char(' ' | 'f') => self.frozen = !self.frozen,
            KeyCode::Char('w') => {
                self.period = match self.period {
                    Period::Recent => Period::Total,
                    Period::Total => Period::Recent,
                }
            }
            KeyCode::Char('t') => self.tail = !self.tail,
            KeyCode::Char('c') => self.colour = !self.colour,
            _ => {}
        }
        Wish::GoOn
    }

    fn write(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) if self.filter.len() < 60 => self.filter.push(c),
            _ => {}
        }
    }
}
