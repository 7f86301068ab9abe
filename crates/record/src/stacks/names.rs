//! What the code of a frame is called.

use std::collections::HashMap;

use tailscope_symbols::functions::Functions;
use tailscope_symbols::kallsyms::Kallsyms;

use super::frames::Frame;
use super::made;
use super::processes::Module;

/// What the kernel's frames have as their file.
pub(super) const KERNEL: &str = "[kernel]";
/// What code has that was made at run time.
const JIT: &str = "[JIT]";
/// What frames have that are in none of these.
const NOWHERE: &str = "[unknown]";

/// A frame in words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Named {
    /// The function, with those that were inlined into it before it; empty: not known.
    pub(super) functions: Vec<String>,
    /// The file that has the code.
    pub(super) module: String,
    /// Where in the file, in the file's own numbering of addresses; of the kernel's code and of
    /// code in no file, the address.
    pub(super) address: u64,
}

/// Names frames, each file's once.
pub(super) struct Namer<'n> {
    kernel: &'n Kallsyms,
    modules: &'n [Module],
    made: made::Names,
    functions: HashMap<u32, Functions>,
    known: HashMap<Frame, Named>,
}

impl<'n> Namer<'n> {
    pub(super) fn new(kernel: &'n Kallsyms, modules: &'n [Module], made: made::Names) -> Self {
        Self {
            kernel,
            modules,
            made,
            functions: HashMap::new(),
            known: HashMap::new(),
        }
    }

    pub(super) fn name(&mut self, frame: Frame) -> &Named {
        if !self.known.contains_key(&frame) {
            let named = self.find(frame);
            self.known.insert(frame, named);
        }
        &self.known[&frame]
    }

    fn find(&mut self, frame: Frame) -> Named {
        match frame {
            Frame::Kernel(address) => Named {
                functions: self
                    .kernel
                    .find(address)
                    .map(str::to_owned)
                    .into_iter()
                    .collect(),
                module: KERNEL.to_owned(),
                address,
            },
            Frame::Made { process, address } => Named {
                functions: self
                    .made
                    .get(&(process, address))
                    .cloned()
                    .into_iter()
                    .collect(),
                module: JIT.to_owned(),
                address,
            },
            Frame::Unknown(address) => Named {
                functions: Vec::new(),
                module: NOWHERE.to_owned(),
                address,
            },
            Frame::Code { module, offset } => self.in_file(module, offset),
        }
    }

    fn in_file(&mut self, number: u32, offset: u64) -> Named {
        let module = &self.modules[number as usize];
        let path = module.path.to_string_lossy().into_owned();
        let Some(address) = module.address_of(offset) else {
            return Named {
                functions: Vec::new(),
                module: path,
                address: offset,
            };
        };
        let functions = self.functions.entry(number).or_insert_with(|| {
            let files = module.files();
            files.map_or_else(Functions::default, |(file, debug)| {
                Functions::of(file, debug)
            })
        });
        Named {
            functions: functions.find(address),
            module: path,
            address,
        }
    }
}
