//! A new configuration for an agent that goes on.
//!
//! What can be changed around the running programs is: processes that are added, what is kept,
//! the folder, rotation, quota, metrics, export. Other spans, another sample, or processes that
//! are no longer chosen need other programs: those are loaded while the old ones record, and then
//! take their place.
//!
//! The second recorder watches the processes that the new configuration chooses. It listens on a
//! socket beside the first one's. When nothing else can be refused, that socket is renamed into
//! place. Then the second recorder gets a new ledger, and the first one's is sealed.

use std::io::ErrorKind;
use std::time::Instant;

use tailscope_record::Recorder;

use super::budget::Held;
use super::parts::{begin_now, exporter, listener, recorder, scrape};
use super::processes::choose_all;
use super::{Agent, AgentError};
use crate::archive::Archive;
use crate::choice::Facts;
use crate::config::Config;
use crate::ledger_worker::Job;
use crate::rotation::Reason;
use crate::scrape::Scrape;
use crate::systemd::notify;

/// What is said of a reload around the running programs.
const AROUND: &str = "reloaded";

impl Agent {
    /// Reads the configuration again. One that is wrong, or can't be done, is refused: the old one
    /// goes on.
    pub(super) fn reload(&mut self) -> Result<(), AgentError> {
        notify("RELOADING=1");
        self.attach()?;
        let applied = Config::read(&self.path)
            .map_err(AgentError::from)
            .and_then(|config| self.apply(config));
        match applied {
            Ok(how) => {
                let is_other = self.held.as_ref().map(Held::allowed) != self.config.overhead();
                self.counts.reloads += 1;
                self.counts.last_refused = false;
                (self.say)(&format!("{how}: {}", self.path.display()));
                self.search()?;
                self.announce();
                if is_other || how != AROUND {
                    self.begin_budget()?;
                }
            }
            // By then the recorder has no ledger any more.
            Err(e @ AgentError::Begin(_)) => return Err(e),
            Err(e) => {
                self.listen_again();
                self.counts.refused_reloads += 1;
                self.counts.last_refused = true;
                (self.say)(&format!("{e}\nthe old configuration stays in use"));
            }
        }
        notify("READY=1");
        Ok(())
    }

    /// Everything that can fail is done before anything is changed.
    fn apply(&mut self, new: Config) -> Result<&'static str, AgentError> {
        let moves = self.config.ledger.folder.as_ref() != new.ledger.folder.as_ref();
        let archive = moves
            .then(|| Archive::open(new.ledger.folder.as_ref()))
            .transpose()?;
        // A listener that goes hangs up on those who have just connected.
        let listens_elsewhere = self.config.metrics.listen != new.metrics.listen;
        let new_scrape = if listens_elsewhere {
            self.listen(&new)?
        } else {
            None
        };
        let mut successor = if self.needs_other_programs(&new) {
            let before = self.recording.recorder();
            let mut next = recorder(&new, before.and_then(Recorder::sdk_address))?;
            let chosen = choose_all(&mut next, &new, &self.say)?;
            Some((next, chosen))
        } else {
            None
        };
        let succeeds = successor.is_some();
        // A file of certificates may have others by now.
        let has_file = new.otlp.as_ref().is_some_and(|otlp| otlp.ca_file.is_some());
        let other_export = self.config.otlp != new.otlp || has_file || succeeds;
        let new_exporter = if other_export {
            let next = successor.as_ref().map(|(next, _)| next);
            let recorder = next.or(self.recording.recorder());
            let measured = recorder.map(Recorder::measured).unwrap_or_default();
            exporter(&new, measured, &self.exported)?
        } else {
            None
        };
        if let Some((next, _)) = &mut successor {
            next.take_over()?;
        }
        if listens_elsewhere {
            self.scrape = new_scrape;
        }
        if let Some(archive) = archive {
            self.settle();
            self.ledger_worker.give(Job::Move(archive));
        }
        let other_retention = self.config.record.policy() != new.record.policy();
        let other_budget = self.config.overhead() != new.overhead();
        self.config = new;
        self.ask_by_process();
        match successor {
            Some((next, chosen)) => self.succeed(next, chosen)?,
            None => {
                if other_retention {
                    let policy = self.config.record.policy();
                    let recorder = self.recording.attached();
                    recorder.map_or(Ok(()), |recorder| recorder.keep(policy))?;
                }
                // A ledger says how it was kept, within which budget, and where it lies.
                if other_retention || other_budget || moves {
                    self.rotate(Reason::Reload);
                }
            }
        }
        if other_export {
            let tap = self.by_process.tap(new_exporter.as_ref());
            if let Some(recorder) = self.recording.attached() {
                recorder.tap(Some(tap));
            }
            // The one before ends by itself: a collector that is slow holds up nobody.
            self.exporter = new_exporter;
        }
        self.shrink();
        Ok(if succeeds {
            "reloaded, with new kernel programs"
        } else {
            AROUND
        })
    }

    /// Serves metrics at another address. Where that takes the port of the present one, as
    /// `0.0.0.0:9745` takes that of `127.0.0.1:9745`, the present one ends first.
    fn listen(&mut self, new: &Config) -> Result<Option<Scrape>, AgentError> {
        match self.scrape_of(new) {
            Err(AgentError::Listen { address, source })
                if source.kind() == ErrorKind::AddrInUse
                    && self.scrape.as_ref().map(|old| old.address().port())
                        == Some(address.port()) =>
            {
                self.scrape = None;
                self.scrape_of(new)
            }
            done => done,
        }
    }

    fn scrape_of(&self, config: &Config) -> Result<Option<Scrape>, AgentError> {
        scrape(
            listener(config, self.passed.as_ref())?,
            &self.scrape_requests,
        )
    }

    /// Serves metrics where it did before a reload that was refused.
    fn listen_again(&mut self) {
        if self.scrape.is_none() {
            match self.scrape_of(&self.config) {
                Ok(scrape) => self.scrape = scrape,
                Err(e) => (self.say)(&e.to_string()),
            }
        }
    }

    fn needs_other_programs(&self, new: &Config) -> bool {
        let (was, will) = (&self.config.record, &new.record);
        let left_out = |pid: &u32| {
            let facts = Facts::of(*pid);
            let recorder = self.recording.recorder();
            recorder.is_some_and(|recorder| recorder.processes().contains(pid))
                && !new.process.iter().any(|rule| rule.as_ref().fits(&facts))
        };
        was.sources() != will.sources()
            || was.sample != will.sample
            || was.children != will.children
            || was.counters() != will.counters()
            || was.stacks() != will.stacks()
            || was.names.as_ref() != will.names.as_ref()
            || was.tls_names.as_ref() != will.tls_names.as_ref()
            || was.traceparent.as_ref() != will.traceparent.as_ref()
            || self.chosen.iter().any(left_out)
    }

    /// The next recorder, which sees all that this one sees, takes its place. What both have seen until
    /// then is this one's. The spans that are open at that moment are those that neither
    /// sees whole.
    fn succeed(&mut self, mut next: Recorder, chosen: Vec<u32>) -> Result<(), AgentError> {
        self.settle();
        let mut others = Vec::new();
        let ledger = begin_now(&self.ledger_worker, &next, &mut others)?;
        others.into_iter().for_each(|done| self.ledger_done(done));
        self.chosen = chosen;
        next.rotate(ledger);
        let twice = next.counted();
        if let Some(mut before) = self.recording.replace(next) {
            let closing = before.end_ledger();
            self.seal(closing);
            before.tap(None);
            self.counts.before.add(&before.counted());
        }
        // The next one numbers names differently.
        self.by_process.lock().refresh();
        self.counts.before.take_away(&twice);
        self.counts.turns[Reason::Reload.index()] += 1;
        self.began = Instant::now();
        Ok(())
    }
}
