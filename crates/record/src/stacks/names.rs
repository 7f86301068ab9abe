//! What the code of a frame is called.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tailscope_symbols::functions::Functions;
use tailscope_symbols::kallsyms::Kallsyms;

use super::frames::Frame;
use super::made;
use super::processes::Module;
use super::python::Python;

/// What the kernel's frames have as their file.
pub(super) const KERNEL: &str = "[kernel]";
/// What code has that was made at run time.
pub(super) const JIT: &str = "[JIT]";
/// What functions of Python have that are not known.
pub(super) const PYTHON: &str = "[Python]";
/// What frames have that are in none of these.
pub(super) const NOWHERE: &str = "[unknown]";

/// A frame in words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Named {
    /// The function, with those that were inlined into it before it; empty: not known.
    pub(super) functions: Vec<String>,
    /// The file that has the code.
    pub(super) module: String,
    /// Where in the file, in the file's own numbering of addresses; of the kernel's code and of
    /// code in no file, the address. Of a function of Python, its first line.
    pub(super) address: u64,
    /// It is a function of Python.
    pub(super) python: bool,
    /// Which build the file is of; empty: it does not say, or is none of a compiler's.
    pub(super) build_id: String,
}

/// Names frames, each file's once.
pub(super) struct Namer<'n> {
    kernel: &'n Kallsyms,
    modules: &'n [Arc<Module>],
    made: made::Names,
    python: &'n Python,
    functions: HashMap<u32, Functions>,
    /// How those of a file are found.
    find: fn(File, Option<File>) -> Functions,
    known: HashMap<Frame, Named>,
    /// When it reads no more files.
    until: Option<Instant>,
}

impl<'n> Namer<'n> {
    pub(super) fn new(
        kernel: &'n Kallsyms,
        modules: &'n [Arc<Module>],
        made: made::Names,
        python: &'n Python,
    ) -> Self {
        Self {
            kernel,
            modules,
            made,
            python,
            functions: HashMap::new(),
            find: Functions::of,
            known: HashMap::new(),
            until: None,
        }
    }

    /// By symbols alone, for names while it records or where memory is scarce; with what is known of
    /// files already.
    pub(super) fn at_once(mut self, functions: HashMap<u32, Functions>) -> Self {
        self.find = Functions::of_symbols;
        self.functions = functions;
        self
    }

    /// Reads no more files after this time.
    pub(super) fn within(mut self, patience: Duration) -> Self {
        self.until = Some(Instant::now() + patience);
        self
    }

    /// Names all of these for later: file by file, so that the functions of one file are in memory at a
    /// time.
    pub(super) fn prepare(&mut self, mut frames: Vec<Frame>) {
        let module = |frame: &Frame| match frame {
            Frame::Code { module, .. } => Some(*module),
            _ => None,
        };
        frames.sort_unstable_by_key(module);
        for of_one in frames.chunk_by(|a, b| module(a) == module(b)) {
            for frame in of_one {
                self.name(*frame);
            }
            self.functions.clear();
        }
    }

    /// What it knows of files.
    pub(super) fn into_functions(self) -> HashMap<u32, Functions> {
        self.functions
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
                ..Named::default()
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
                ..Named::default()
            },
            Frame::Unknown(address) => Named {
                functions: Vec::new(),
                module: NOWHERE.to_owned(),
                address,
                ..Named::default()
            },
            Frame::Code { module, offset } => self.in_file(module, offset),
            Frame::Python(number) => self.of_python(number),
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
                ..Named::default()
            };
        };
        let find = self.find;
        let is_late = self.until.is_some_and(|until| Instant::now() > until);
        let functions = self.functions.entry(number).or_insert_with(|| {
            let files = module.files().filter(|_| !is_late);
            files.map_or_else(Functions::default, |(file, debug)| find(file, debug))
        });
        Named {
            functions: functions.find(address),
            module: path,
            address,
            build_id: module.build_id.clone(),
            ..Named::default()
        }
    }

    fn of_python(&self, number: Option<u32>) -> Named {
        let Some(function) = number.map(|number| self.python.function(number)) else {
            return Named {
                module: PYTHON.to_owned(),
                python: true,
                ..Named::default()
            };
        };
        // All lambdas have one name. The line says which it is: `<lambda>:7`.
        let name = match function.name.ends_with('>') {
            true => format!("{}:{}", function.name, function.line),
            false => function.name.clone(),
        };
        Named {
            functions: vec![name],
            module: function.file.clone(),
            address: function.line.into(),
            python: true,
            ..Named::default()
        }
    }
}
