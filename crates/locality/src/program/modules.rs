//! The files that a program has mapped: names of their functions and variables, and their tables for
//! unwinding.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;

use tailscope_process::maps::Mapping;
use tailscope_process::rooted::FileKey;
use tailscope_symbols::data::{Data, Pointer};
use tailscope_symbols::debug_file::DebugFile;
use tailscope_symbols::functions::{Functions, plain_name};
use tailscope_symbols::nearest::nearest;
use tailscope_symbols::table::{self, Symbol, Symbols};
use tailscope_symbols::unwind::{Code, Unwinder};

/// Files that are read, at most.
const MOST_MODULES: usize = 512;
/// What compilers name parts of a function that are entered from the function itself.
const PARTS: [&str; 2] = [".cold", ".part."];
/// Memory for the unwind tables of all of them.
const MOST_TABLES: usize = 256 << 20;
/// Bytes of descriptions of their source.
const MOST_DESCRIBED: u64 = 512 << 20;

#[derive(Debug)]
struct Module {
    file: Option<File>,
    debug: Option<File>,
    code: Code,
    /// The first byte of the file's first mapping, and the first behind its last one.
    first: Mapping,
    functions: Option<Functions>,
    variables: Option<Variables>,
    data: Option<Data>,
}

#[derive(Debug, Default)]
struct Variables {
    by_address: Vec<Symbol>,
    bias: u64,
}

/// The files of one program.
#[derive(Debug, Default)]
pub(super) struct Modules {
    modules: HashMap<FileKey, Module>,
    tables: usize,
    described: u64,
}

impl Modules {
    /// Takes the files of these mappings, and returns what unwinds their code.
    pub(super) fn adopt(&mut self, pid: u32, maps: &[Mapping]) -> Unwinder {
        let mut unwinder = Unwinder::default();
        for mapping in maps.iter().filter(|m| m.has_path()) {
            self.open(pid, mapping, maps);
            if let Some(module) = self.modules.get(&mapping.file).filter(|_| mapping.code) {
                unwinder.add(&module.code, mapping.addresses(), mapping.offset);
            }
        }
        unwinder
    }

    fn open(&mut self, pid: u32, mapping: &Mapping, maps: &[Mapping]) {
        if self.modules.len() >= MOST_MODULES || self.modules.contains_key(&mapping.file) {
            return;
        }
        let of_file = || maps.iter().filter(|m| m.file == mapping.file);
        if !of_file().any(|m| m.code) {
            return; // data
        }
        let first = of_file().next().unwrap_or(mapping).clone();
        let file = mapping.open(pid).ok();
        let debug = file
            .as_ref()
            .and_then(|file| DebugFile::of_mapped(pid, mapping, file).found);
        let room = MOST_TABLES.saturating_sub(self.tables);
        let code = file.as_ref().and_then(|file| Code::of(file, room).ok());
        let code = code.unwrap_or_default();
        self.tables += code.bytes();
        let module = Module {
            file,
            debug,
            code,
            first,
            functions: None,
            variables: None,
            data: None,
        };
        self.modules.insert(mapping.file, module);
    }

    /// The functions at a code address, the innermost inlined one first.
    pub(super) fn functions(&mut self, mapping: &Mapping, ip: u64) -> Vec<String> {
        let Some(module) = self.modules.get_mut(&mapping.file) else {
            return Vec::new();
        };
        let address = module.code.address_of(ip - mapping.start + mapping.offset);
        address.map_or_else(Vec::new, |address| module.functions().find(address))
    }

    /// All code of the function that has the code at an address, its own first.
    pub(super) fn body(&mut self, mapping: &Mapping, ip: u64) -> Option<Vec<Range<u64>>> {
        let module = self.modules.get_mut(&mapping.file)?;
        let address = module
            .code
            .address_of(ip - mapping.start + mapping.offset)?;
        let body = module.functions().body(address)?;
        let bias = ip.wrapping_sub(address);
        let there = |part: Range<u64>| part.start.wrapping_add(bias)..part.end.wrapping_add(bias);
        Some(body.into_iter().map(there).collect())
    }

    /// The variable at a data address.
    pub(super) fn variable(&mut self, address: u64) -> Option<String> {
        let modules = self.modules.values_mut();
        modules
            .filter(|module| module.first.start <= address)
            .find_map(|module| module.variables().find(address))
    }

    /// The same as its file's source declares it, and the file.
    pub(super) fn variable_in_source(&mut self, address: u64) -> Option<(FileKey, Pointer)> {
        let modules = self.modules.iter_mut();
        modules
            .filter(|(_, module)| module.first.start <= address)
            .find_map(|(file, module)| {
                // Without it the descriptions of all files would be read for each address.
                module.variables().find(address)?;
                let own = address.checked_sub(module.variables().bias)?;
                Some((*file, module.data(&mut self.described).variable(own)?))
            })
    }

    /// Whether the function at a code address takes and keeps registers as those of C do.
    pub(super) fn calls_as_c(&mut self, mapping: &Mapping, ip: u64) -> Option<bool> {
        let module = self.modules.get_mut(&mapping.file)?;
        let own = module
            .code
            .address_of(ip - mapping.start + mapping.offset)?;
        Some(module.data(&mut self.described).calls_as_c(own))
    }

    /// What a register points to at a code address, and the file whose source says so.
    pub(super) fn pointer(
        &mut self,
        mapping: &Mapping,
        ip: u64,
        register: u16,
    ) -> Option<(FileKey, Pointer)> {
        let module = self.modules.get_mut(&mapping.file)?;
        let own = module
            .code
            .address_of(ip - mapping.start + mapping.offset)?;
        let found = module.data(&mut self.described).pointer(own, register)?;
        Some((mapping.file, found))
    }

    /// What a file's source says of data.
    pub(super) fn data(&mut self, file: FileKey) -> Option<&Data> {
        let module = self.modules.get_mut(&file)?;
        Some(module.data(&mut self.described))
    }

    /// As [`super::Program::look_up`].
    pub(super) fn look_up(&mut self, name: &str) -> Result<(), Vec<String>> {
        let mut names = Vec::new();
        for module in self.modules.values() {
            for file in [&module.file, &module.debug].into_iter().flatten() {
                let symbols = table::functions(file).unwrap_or_default();
                let all = symbols.all.iter().map(|symbol| plain_name(&symbol.name));
                names.extend(all);
            }
        }
        if names.iter().any(|known| known == name) {
            return Ok(());
        }
        let near = nearest(name, names.iter().map(String::as_str));
        Err(near.into_iter().map(str::to_owned).collect())
    }

    /// As [`super::Program::starts`].
    pub(super) fn starts(&mut self, name: &str, most: usize) -> Vec<u64> {
        let is_whole = |symbol: &str| PARTS.iter().all(|part| !symbol.contains(part));
        let mut starts = Vec::new();
        for module in self.modules.values() {
            let files = [&module.file, &module.debug].into_iter().flatten();
            let tables: Vec<Symbols> = files.flat_map(table::functions).collect();
            // The pieces of a debug file need not lie where those of the program do.
            let bias = tables.first().and_then(|table| table.bias(&module.first));
            let Some(bias) = bias else {
                continue;
            };
            let all = tables.iter().flat_map(|table| &table.all);
            let named = all.filter(|s| is_whole(&s.name) && plain_name(&s.name) == name);
            starts.extend(named.map(|symbol| symbol.address.wrapping_add(bias)));
        }
        starts.sort_unstable();
        starts.dedup();
        starts.truncate(most);
        starts
    }
}

impl Module {
    fn functions(&mut self) -> &Functions {
        let clone = |file: &Option<File>| file.as_ref().and_then(|file| file.try_clone().ok());
        let (file, debug) = (clone(&self.file), clone(&self.debug));
        self.functions.get_or_insert_with(|| match file {
            Some(file) => Functions::of(file, debug),
            None => Functions::default(),
        })
    }

    /// `described`: bytes of descriptions that have been read of all files.
    fn data(&mut self, described: &mut u64) -> &Data {
        let files = [&self.file, &self.debug].into_iter().flatten();
        let files = files.filter_map(|file| file.try_clone().ok());
        let room = MOST_DESCRIBED.saturating_sub(*described);
        self.data.get_or_insert_with(|| {
            let data = Data::of_files(files, room);
            *described += data.bytes();
            data
        })
    }

    fn variables(&mut self) -> &Variables {
        let files = [&self.file, &self.debug];
        self.variables.get_or_insert_with(|| {
            let read = |file: &File| table::variables(file).ok();
            let tables = files.into_iter().flatten().filter_map(read);
            Variables::of(tables, &self.first)
        })
    }
}

impl Variables {
    fn of(tables: impl Iterator<Item = Symbols>, first: &Mapping) -> Self {
        let mut variables = Self::default();
        for table in tables {
            if let Some(bias) = table.bias(first) {
                variables.bias = bias;
            }
            let named = table.all.into_iter();
            let named = named.filter(|s| s.size > 0 && s.address > 0 && !s.is_thread_local());
            variables.by_address.extend(named);
        }
        variables.by_address.sort_by_key(|symbol| symbol.address);
        variables
    }

    /// `NAME+0x8`.
    fn find(&self, address: u64) -> Option<String> {
        let address = address.checked_sub(self.bias)?;
        let behind = self.by_address.partition_point(|s| s.address <= address);
        let symbol = self.by_address[..behind].last()?;
        let within = address - symbol.address;
        (within < symbol.size).then(|| format!("{}+{within:#x}", plain_name(&symbol.name)))
    }
}
