//! The maps of meters that processes with the SDK get, one each.

use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use libbpf_rs::{MapCore, MapHandle, Object};

use crate::watch::{WatchError, kernel, map_of, new_meters, place_meters};

/// Places of the array `meters` of loaded programs, and who has a map in which.
#[derive(Debug)]
pub(crate) struct MeterMaps {
    places: Range<u32>,
    given: HashMap<u32, (u32, MapHandle)>,
    spare: Option<(u32, MapHandle)>,
}

impl MeterMaps {
    /// `places`: those that may be given.
    pub(crate) fn new(places: Range<u32>) -> Self {
        Self {
            places,
            given: HashMap::new(),
            spare: None,
        }
    }

    /// Places a map for the process that comes next, unless one is there. The kernel has every CPU pass
    /// through a quiet state first, some 10 ms in which nobody should wait for us.
    pub(crate) fn prepare(&mut self, object: &Object) -> Result<(), WatchError> {
        if self.spare.is_none() {
            self.spare = Some(self.further(object)?);
        }
        Ok(())
    }

    /// Gives a process a map, in place of one that it had; `tell` has the programs know of its place.
    pub(crate) fn give(
        &mut self,
        object: &Object,
        pid: u32,
        tell: impl FnOnce(u32) -> libbpf_rs::Result<()>,
    ) -> Result<BorrowedFd<'_>, WatchError> {
        let (index, meters) = match self.spare.take() {
            Some(spare) => spare,
            None => self.further(object)?,
        };
        if let Err(source) = tell(index) {
            self.spare = Some((index, meters));
            return Err(kernel("tell the programs of a map of meters")(source));
        }
        self.take_back(object, pid);
        self.given.insert(pid, (index, meters));
        Ok(self.given[&pid].1.as_fd())
    }

    /// The map that a process was given.
    pub(crate) fn of(&self, pid: u32) -> Option<BorrowedFd<'_>> {
        self.given.get(&pid).map(|(_, map)| map.as_fd())
    }

    /// Takes the map away from a process; false if it had none.
    pub(crate) fn take_back(&mut self, object: &Object, pid: u32) -> bool {
        let Some((index, _)) = self.given.remove(&pid) else {
            return false;
        };
        let _ = map_of(object, "meters").delete(&index.to_ne_bytes());
        true
    }

    fn further(&self, object: &Object) -> Result<(u32, MapHandle), WatchError> {
        let is_free = |index: &u32| !self.given.values().any(|(taken, _)| taken == index);
        let free = self.places.clone().find(is_free);
        let index = free.ok_or(WatchError::TooManySdk(self.places.len()))?;
        let meters = new_meters().map_err(kernel("make a map of meters"))?;
        place_meters(object, index, &meters).map_err(kernel("place a map of meters"))?;
        Ok((index, meters))
    }
}
