//! The definitions of a process, found by their identifiers.

use crate::codec::{self, HEAD_BYTES, Piece};
use crate::definition::{
    ArgumentMemory, Arguments, CallStack, Config, Context, Definition, Device, Function, FunctionCode, Graph,
    Module, Range, Stream, Variable,
};
use crate::python::PythonCode;
use crate::reader::header::u32_at;
use std::collections::BTreeMap;

/// The meaning of the identifiers in a process's records. An identifier that was never defined
/// gives `None`: 0 never is.
#[derive(Clone, Debug, Default)]
pub struct Definitions {
    names: Table<String>,
    devices: Table<Device>,
    contexts: Table<Context>,
    streams: Table<Stream>,
    functions: Table<Function>,
    configs: Table<Config>,
    graphs: Table<Graph>,
    python_codes: Table<PythonCode>,
    modules: Table<Module>,
    call_stacks: Table<CallStack>,
    ranges: Table<Range>,
    function_codes: Table<FunctionCode>,
    arguments_of_launches: Table<Arguments>,
    argument_memories: Table<ArgumentMemory>,
    variables: Table<Variable>,
}

macro_rules! lookups {
    ($($(#[$doc:meta])* $one:ident, $many:ident: $type:ty;)*) => {
        impl Definitions {
            $(
                $(#[$doc])*
                pub fn $one(&self, id: u32) -> Option<&$type> {
                    self.$many.get(id)
                }

                /// All of them, in the order of their identifiers.
                pub fn $many(&self) -> impl Iterator<Item = &$type> {
                    self.$many.iter()
                }
            )*
        }
    };
}

lookups! {
    /// A device.
    device, devices: Device;
    /// A context.
    context, contexts: Context;
    /// A stream.
    stream, streams: Stream;
    /// A kernel.
    function, functions: Function;
    /// A kernel in one launch configuration.
    config, configs: Config;
    /// An executable graph.
    graph, graphs: Graph;
    /// A code object of the Python interpreter.
    python_code, python_codes: PythonCode;
    /// An executable file or library.
    module, modules: Module;
    /// A call stack.
    call_stack, call_stacks: CallStack;
    /// A range that the program names.
    range, ranges: Range;
    /// The image that a function is from.
    function_code, function_codes: FunctionCode;
    /// The arguments of a kernel in a launch.
    arguments, arguments_of_launches: Arguments;
    /// The memory to which a kernel's arguments point in a configuration.
    argument_memory, argument_memories: ArgumentMemory;
    /// A variable of the program's environment.
    variable, variables: Variable;
}

impl Definitions {
    /// The name of an entry point.
    pub fn name(&self, id: u32) -> Option<&str> {
        self.names.get(id).map(String::as_str)
    }

    /// All names of entry points, in the order of their identifiers.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Adds what a part of a definitions chunk holds. `problem` is called with an offset in it.
    /// `is_known` says that no kind of definition can be newer than this reader. False if what
    /// follows can't be understood.
    pub(crate) fn add_chunk(
        &mut self,
        payload: &[u8],
        is_known: bool,
        mut problem: impl FnMut(usize, String),
    ) -> bool {
        let mut at = 0;
        while at < payload.len() {
            let rest = &payload[at..];
            let (tag, length) = (u32_at(rest, 0), u32_at(rest, 4) as usize);
            let Some(bytes) = rest.get(HEAD_BYTES..).and_then(|rest| rest.get(..length)).filter(|_| tag != 0)
            else {
                let left = rest.len();
                problem(
                    at,
                    format!(
                        "no definition here (tag {tag}, {length} bytes, where {left} are left); the rest of this chunk's definitions is lost"
                    ),
                );
                return false;
            };
            match codec::decode(tag, bytes) {
                Ok(Piece::Unknown) if is_known => {
                    problem(at, format!("damaged: a definition of the unknown kind {tag}; it is left out"));
                }
                Ok(piece) => self.add(piece),
                Err(what) => {
                    problem(at, format!("a definition (tag {tag}) is damaged: {what}; it is left out"))
                }
            }
            at += (HEAD_BYTES + length).next_multiple_of(codec::ALIGNMENT);
        }
        true
    }

    fn add(&mut self, piece: Piece) {
        match piece {
            Piece::Whole(Definition::Name { id, text }) => self.names.insert(id, text),
            Piece::Whole(Definition::Device(device)) => self.devices.insert(device.id, device),
            Piece::Whole(Definition::Context(context)) => self.contexts.insert(context.id, context),
            Piece::Whole(Definition::Stream(stream)) => self.streams.insert(stream.id, stream),
            Piece::Whole(Definition::Function(function)) => self.functions.insert(function.id, function),
            Piece::Whole(Definition::Config(config)) => self.configs.insert(config.id, config),
            Piece::Whole(Definition::Graph(graph)) => self.graphs.insert(graph.id, graph),
            Piece::Whole(Definition::PythonCode(code)) => self.python_codes.insert(code.id, code),
            Piece::Whole(Definition::Module(module)) => self.modules.insert(module.id, module),
            Piece::Whole(Definition::CallStack(stack)) => self.call_stacks.insert(stack.id, stack),
            Piece::Whole(Definition::Range(range)) => self.ranges.insert(range.id, range),
            Piece::Whole(Definition::FunctionCode(code)) => self.function_codes.insert(code.id, code),
            Piece::Whole(Definition::Arguments(given)) => self.arguments_of_launches.insert(given.id, given),
            Piece::Whole(Definition::ArgumentMemory(memory)) => {
                self.argument_memories.insert(memory.id, memory)
            }
            Piece::Whole(Definition::Variable(variable)) => self.variables.insert(variable.id, variable),
            Piece::GraphContinued { id, kernels } => {
                if let Some(graph) = self.graphs.get_mut(id) {
                    graph.kernels.extend(kernels);
                }
            }
            Piece::Unknown => {}
        }
    }
}

/// Values by identifier. Identifiers count from 1, so nearly all sit in `dense`; those that come
/// before their predecessors, and a damaged file's absurd ones, in `early`, where they cost no
/// memory in proportion to their value.
///
/// One type of map serves the tables of all types: one for each of them was a fifth of this crate's
/// machine code.
#[derive(Clone, Debug)]
struct Table<T> {
    /// Identifier `i` at `i - 1`.
    dense: Vec<T>,
    early: Vec<Option<T>>,
    /// The places in `early`, by identifier.
    places: BTreeMap<u32, usize>,
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table { dense: Vec::new(), early: Vec::new(), places: BTreeMap::new() }
    }
}

impl<T> Table<T> {
    fn get(&self, id: u32) -> Option<&T> {
        let early = || self.early[*self.places.get(&id)?].as_ref();
        self.dense.get((id as usize).wrapping_sub(1)).or_else(early)
    }

    fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        match self.dense.get_mut((id as usize).wrapping_sub(1)) {
            None => self.early[*self.places.get(&id)?].as_mut(),
            found => found,
        }
    }

    /// A later value of an identifier replaces an earlier one. 0 stands for none and can't be
    /// defined.
    fn insert(&mut self, id: u32, value: T) {
        if id == 0 {
            return;
        }
        if let Some(old) = self.get_mut(id) {
            *old = value;
        } else if id as usize == self.dense.len() + 1 {
            self.dense.push(value);
            self.append_early();
        } else {
            self.places.insert(id, self.early.len());
            self.early.push(Some(value));
        }
    }

    /// Appends the values whose predecessors have come.
    fn append_early(&mut self) {
        while let Some(place) = self.places.remove(&(self.dense.len() as u32 + 1)) {
            self.dense.extend(self.early[place].take());
        }
        if self.places.is_empty() {
            self.early.clear();
        }
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        let early = self.places.values().filter_map(|&place| self.early[place].as_ref());
        self.dense.iter().chain(early)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_takes_identifiers_in_any_order() {
        let mut table = Table::default();
        for id in [3, 1, 4_000_000_000, 2, 5, 4, 0, 2] {
            table.insert(id, id);
        }
        assert_eq!(table.iter().copied().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 4_000_000_000]);
        assert_eq!(table.dense.len(), 5);
        for id in [1, 2, 3, 4, 5, 4_000_000_000] {
            assert_eq!(table.get(id), Some(&id));
        }
        assert_eq!((table.get(0), table.get(6)), (None, None));
    }
}
