//! Programs and maps of an object, by the names that they have in `src/bpf`.

use libbpf_rs::{Map, MapCore, Object, ProgramMut};

pub(crate) fn program<'o>(object: &'o mut Object, name: &str) -> ProgramMut<'o> {
    object
        .progs_mut()
        .find(|program| program.name() == name)
        .unwrap_or_else(|| unreachable!("the object has no program {name}: see src/bpf"))
}

pub(crate) fn map_of<'o>(object: &'o Object, name: &str) -> Map<'o> {
    object
        .maps()
        .find(|map| map.name() == name)
        .unwrap_or_else(|| unreachable!("the object has no map {name}: see src/bpf"))
}
