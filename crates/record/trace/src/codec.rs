//! Definitions as bytes.
//!
//! Integers are little-endian; a string is a `u32` of bytes and then UTF-8 (any bytes for a line
//! table); a list is a `u32` of entries and then the entries. A reader ignores what follows the
//! fields it knows and skips tags that it does not know, so fields and tags may be added without a
//! new version.

use crate::definition::{
    ArgumentMemory, Arguments, CallStack, Config, Context, Definition, Device, Function, FunctionCode, Graph,
    Module, NativeFrame, Pointer, PythonFrame, Range, Stream, StreamKind, Variable,
};
use crate::layout::CHUNK_PAYLOAD_BYTES;
use crate::python::{LineTable, PythonCode};
use cuda_launch::{Carveout, Dim3, FunctionAttributes, LaunchConfig};

/// Bytes in front of a definition's payload: tag and length.
pub(crate) const HEAD_BYTES: usize = 8;
/// Definitions start at multiples of this.
pub(crate) const ALIGNMENT: usize = 8;
/// Longest string; a longer one is cut. (Names of C++ templates reach tens of kilobytes.)
const MAX_STRING_BYTES: usize = 60 * 1024;
/// Most entries in one list; the rest of a graph's kernels follows in [`tag::GRAPH_CONTINUED`].
const MAX_ENTRIES: usize = 16 * 1024;
/// Most frames of compiled code in a call stack.
const MAX_NATIVE_FRAMES: usize = 1024;

const _: () =
    assert!(MAX_STRING_BYTES + 8 * MAX_ENTRIES + 12 * MAX_NATIVE_FRAMES + 256 < CHUNK_PAYLOAD_BYTES);
const _: () = assert!(2 * MAX_STRING_BYTES + LineTable::MOST_BYTES + 256 < CHUNK_PAYLOAD_BYTES);

mod tag {
    pub const NAME: u32 = 1;
    pub const DEVICE: u32 = 2;
    pub const CONTEXT: u32 = 3;
    pub const STREAM: u32 = 4;
    pub const FUNCTION: u32 = 5;
    pub const CONFIG: u32 = 6;
    pub const GRAPH: u32 = 7;
    /// More kernels of a graph.
    pub const GRAPH_CONTINUED: u32 = 8;
    pub const PYTHON_CODE: u32 = 9;
    pub const CALL_STACK: u32 = 10;
    pub const RANGE: u32 = 11;
    pub const MODULE: u32 = 12;
    pub const FUNCTION_CODE: u32 = 13;
    pub const ARGUMENTS: u32 = 14;
    pub const ARGUMENT_MEMORY: u32 = 15;
    pub const VARIABLE: u32 = 20;
}

/// The content of one piece of a definitions chunk.
#[derive(Debug, PartialEq)]
pub(crate) enum Piece {
    /// A definition, whole but for its continuations.
    Whole(Definition),
    /// More `(configuration, nodes)` of a graph.
    GraphContinued { id: u32, kernels: Vec<(u32, u32)> },
    /// A definition with a tag that this version does not know.
    Unknown,
}

/// Encodes a definition as pieces, each of which fits a chunk, and hands them to `write` until it
/// says false. `buffer` is overwritten. True if all were written; false where there is no memory
/// for one, too.
pub(crate) fn encode(
    definition: &Definition,
    buffer: &mut Vec<u8>,
    mut write: impl FnMut(&[u8]) -> bool,
) -> bool {
    let Definition::Graph(graph) = definition else {
        return piece(buffer, definition).is_some_and(write);
    };
    let mut lists = graph.kernels.chunks(MAX_ENTRIES);
    let first = lists.next().unwrap_or_default();
    graph_piece(buffer, graph, first).is_some_and(&mut write)
        && lists.all(|list| {
            let continued = framed(buffer, tag::GRAPH_CONTINUED, |out| {
                out.u32(graph.id);
                out.list(list, |out, &(config, nodes)| out.u32s(&[config, nodes]));
            });
            continued.is_some_and(&mut write)
        })
}

fn piece<'b>(buffer: &'b mut Vec<u8>, definition: &Definition) -> Option<&'b [u8]> {
    match definition {
        Definition::Name { id, text } => framed(buffer, tag::NAME, |out| {
            out.u32(*id);
            out.string(text);
        }),
        Definition::Device(device) => framed(buffer, tag::DEVICE, |out| {
            out.u32s(&[device.id, device.ordinal]);
            out.string(&device.name);
            out.bytes(&device.uuid);
            out.u32(device.driver_version);
            out.u64(device.memory_bytes);
            out.list(&device.attributes, |out, &(attribute, value)| out.u32s(&[attribute, value as u32]));
        }),
        Definition::Context(context) => framed(buffer, tag::CONTEXT, |out| {
            out.u32(context.id);
            out.u64(context.handle);
            out.u32s(&[context.device, context.pair_busy_ns, context.pair_idle_ns]);
        }),
        Definition::Stream(stream) => framed(buffer, tag::STREAM, |out| {
            out.u32(stream.id);
            out.u64(stream.handle);
            out.u32s(&[stream.context, stream.kind as u32]);
        }),
        Definition::Function(function) => framed(buffer, tag::FUNCTION, |out| {
            out.u32(function.id);
            out.string(&function.name);
            let known = function.attributes.unwrap_or_default();
            out.u32s(&[known.registers, known.static_shared_bytes, known.local_bytes, known.constant_bytes]);
            out.u32s(&[known.max_threads_per_block, known.max_dynamic_shared_bytes.unwrap_or(0)]);
            out.u32s(&[known.carveout.to_attribute() as u32, known.binary_version, known.ptx_version]);
            out.u32(function.attributes.is_some().into());
        }),
        Definition::Config(config) => framed(buffer, tag::CONFIG, |out| {
            out.u32s(&[config.id, config.function, config.context]);
            let LaunchConfig { grid, block, cluster, dynamic_shared_bytes } = config.launch;
            [grid, block, cluster].iter().for_each(|sides| out.u32s(&sides.to_array()));
            out.u32(dynamic_shared_bytes);
            out.u32(config.requires_block.into());
            if let Some((grid, block)) = config.asked {
                [grid, block].iter().for_each(|sides| out.u32s(&sides.to_array()));
            }
        }),
        Definition::Graph(graph) => graph_piece(buffer, graph, &graph.kernels),
        Definition::PythonCode(code) => framed(buffer, tag::PYTHON_CODE, |out| {
            out.u32(code.id);
            out.string(&code.file);
            out.string(&code.function);
            out.u32s(&[code.first_line, code.lines.format()]);
            out.blob(code.lines.bytes());
        }),
        Definition::CallStack(stack) => framed(buffer, tag::CALL_STACK, |out| {
            out.u32(stack.id);
            out.string(&stack.thread);
            out.list(&stack.python, |out, frame| out.u32s(&[frame.code, frame.offset as u32]));
            out.u32(stack.is_cut.into());
            let native = &stack.native[..stack.native.len().min(MAX_NATIVE_FRAMES)];
            out.list(native, |out, frame| {
                out.u32(frame.module);
                out.u64(frame.address);
            });
        }),
        Definition::Module(module) => framed(buffer, tag::MODULE, |out| {
            out.u32(module.id);
            out.string(&module.path);
            out.string(&module.build_id);
            out.u64(module.bytes);
            out.u64(module.modified_ns);
        }),
        Definition::Variable(variable) => framed(buffer, tag::VARIABLE, |out| {
            out.u32(variable.id);
            out.string(&variable.name);
            out.string(&variable.value);
        }),
        Definition::FunctionCode(code) => framed(buffer, tag::FUNCTION_CODE, |out| {
            out.u32(code.id);
            out.bytes(&code.image.to_le_bytes());
            out.bytes(&code.ptx.to_le_bytes());
        }),
        Definition::Arguments(arguments) => framed(buffer, tag::ARGUMENTS, |out| {
            out.u32s(&[arguments.id, arguments.config]);
            out.list(&arguments.parameters, |out, &(offset, bytes)| out.u32s(&[offset, bytes]));
            out.blob(&arguments.bytes);
            out.list(&arguments.pointers, |out, pointer| {
                out.u32s(&[pointer.at, pointer.allocation]);
                out.u64(pointer.allocation_bytes);
                out.u64(pointer.offset);
            });
        }),
        Definition::ArgumentMemory(memory) => framed(buffer, tag::ARGUMENT_MEMORY, |out| {
            out.u32(memory.id);
            out.list(&memory.parameters, |out, &(parameter, kind)| out.u32s(&[parameter, kind]));
        }),
        Definition::Range(range) => framed(buffer, tag::RANGE, |out| {
            out.u32s(&[range.id, range.parent]);
            out.string(&range.domain);
            out.string(&range.name);
        }),
    }
}

fn graph_piece<'b>(buffer: &'b mut Vec<u8>, graph: &Graph, kernels: &[(u32, u32)]) -> Option<&'b [u8]> {
    framed(buffer, tag::GRAPH, |out| {
        out.u32(graph.id);
        out.u64(graph.handle);
        out.u32s(&[graph.copies, graph.sets, graph.others, graph.opaque]);
        out.list(kernels, |out, &(config, nodes)| out.u32s(&[config, nodes]));
    })
}

/// Tag, length, the payload that `fill` makes, padding; `None` if there is no memory for it: the
/// injected library must not abort where it cannot allocate.
pub(crate) fn framed(buffer: &mut Vec<u8>, tag: u32, fill: impl FnOnce(&mut Output<'_>)) -> Option<&[u8]> {
    buffer.clear();
    let mut out = Output { buffer, is_complete: true };
    out.u32s(&[tag, 0]);
    fill(&mut out);
    let length = out.buffer.len();
    out.bytes(&[0; ALIGNMENT][..length.next_multiple_of(ALIGNMENT) - length]);
    if !out.is_complete {
        return None;
    }
    buffer[4..8].copy_from_slice(&((length - HEAD_BYTES) as u32).to_le_bytes());
    Some(buffer)
}

pub(crate) struct Output<'b> {
    buffer: &'b mut Vec<u8>,
    /// False once there was no memory for something.
    is_complete: bool,
}

/// Definitions are written seldom. Writing a field is a call, or it would be in the injected
/// library a hundred times.
impl Output<'_> {
    #[inline(never)]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.is_complete &= self.buffer.try_reserve(bytes.len()).is_ok();
        if self.is_complete {
            self.buffer.extend_from_slice(bytes);
        }
    }

    #[inline(never)]
    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    #[inline(never)]
    pub(crate) fn u32s(&mut self, values: &[u32]) {
        values.iter().for_each(|&value| self.u32(value));
    }

    #[inline(never)]
    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    #[inline(never)]
    pub(crate) fn string(&mut self, text: &str) {
        let mut end = text.len().min(MAX_STRING_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let text = &text[..end];
        self.u32(text.len() as u32);
        self.bytes(text.as_bytes());
    }

    /// Seven bits a byte, the lowest first; all bytes but the last have the eighth bit set.
    pub(crate) fn short(&mut self, mut value: u64) {
        while value > 0x7f {
            self.bytes(&[value as u8 | 0x80]);
            value >>= 7;
        }
        self.bytes(&[value as u8]);
    }

    fn blob(&mut self, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(LineTable::MOST_BYTES)];
        self.u32(bytes.len() as u32);
        self.bytes(bytes);
    }

    pub(crate) fn list<T>(&mut self, list: &[T], mut entry: impl FnMut(&mut Self, &T)) {
        let list = &list[..list.len().min(MAX_ENTRIES)];
        self.u32(list.len() as u32);
        list.iter().for_each(|item| entry(self, item));
    }
}

/// Decodes the payload of a definition. An error says what is wrong with it.
pub(crate) fn decode(tag: u32, payload: &[u8]) -> Result<Piece, String> {
    let mut input = Input(payload);
    let definition = match tag {
        tag::NAME => Definition::Name { id: input.u32()?, text: input.string()? },
        tag::DEVICE => Definition::Device(Device {
            id: input.u32()?,
            ordinal: input.u32()?,
            name: input.string()?,
            uuid: input.array()?,
            driver_version: input.u32()?,
            memory_bytes: input.u64()?,
            attributes: input.list(|input| Ok((input.u32()?, input.u32()? as i32)))?,
        }),
        tag::CONTEXT => Definition::Context(Context {
            id: input.u32()?,
            handle: input.u64()?,
            device: input.u32()?,
            pair_busy_ns: input.u32()?,
            pair_idle_ns: input.u32()?,
        }),
        tag::STREAM => Definition::Stream(Stream {
            id: input.u32()?,
            handle: input.u64()?,
            context: input.u32()?,
            kind: stream_kind(input.u32()?)?,
        }),
        tag::FUNCTION => Definition::Function(Function {
            id: input.u32()?,
            name: input.string()?,
            attributes: input.function_attributes()?,
        }),
        tag::CONFIG => Definition::Config(Config {
            id: input.u32()?,
            function: input.u32()?,
            context: input.u32()?,
            launch: LaunchConfig {
                grid: input.dim3()?,
                block: input.dim3()?,
                cluster: input.dim3()?,
                dynamic_shared_bytes: input.u32()?,
            },
            // Sessions of earlier versions end here.
            requires_block: !input.0.is_empty() && input.u32()? != 0,
            // As all others do whose launch is the program's.
            asked: if input.0.is_empty() { None } else { Some((input.dim3()?, input.dim3()?)) },
        }),
        tag::GRAPH => Definition::Graph(Graph {
            id: input.u32()?,
            handle: input.u64()?,
            copies: input.u32()?,
            sets: input.u32()?,
            others: input.u32()?,
            opaque: input.u32()?,
            kernels: input.list(Input::u32_pair)?,
        }),
        tag::PYTHON_CODE => Definition::PythonCode(PythonCode {
            id: input.u32()?,
            file: input.string()?,
            function: input.string()?,
            first_line: input.u32()?,
            lines: LineTable::from_parts(input.u32()?, input.blob()?),
        }),
        tag::CALL_STACK => Definition::CallStack(CallStack {
            id: input.u32()?,
            thread: input.string()?,
            python: input
                .list(|input| Ok(PythonFrame { code: input.u32()?, offset: input.u32()? as i32 }))?,
            is_cut: input.u32()? != 0,
            // Sessions of older versions end here.
            native: if input.0.is_empty() { Vec::new() } else { input.list(Input::native_frame)? },
        }),
        tag::MODULE => Definition::Module(Module {
            id: input.u32()?,
            path: input.string()?,
            build_id: input.string()?,
            bytes: input.u64()?,
            modified_ns: input.u64()?,
        }),
        tag::RANGE => Definition::Range(Range {
            id: input.u32()?,
            parent: input.u32()?,
            domain: input.string()?,
            name: input.string()?,
        }),
        tag::FUNCTION_CODE => Definition::FunctionCode(FunctionCode {
            id: input.u32()?,
            image: input.u128()?,
            // Sessions of earlier versions end here.
            ptx: if input.0.is_empty() { 0 } else { input.u128()? },
        }),
        tag::ARGUMENTS => Definition::Arguments(Arguments {
            id: input.u32()?,
            config: input.u32()?,
            parameters: input.list(Input::u32_pair)?,
            bytes: input.blob()?,
            pointers: input.list(Input::pointer)?,
        }),
        tag::ARGUMENT_MEMORY => Definition::ArgumentMemory(ArgumentMemory {
            id: input.u32()?,
            parameters: input.list(Input::u32_pair)?,
        }),
        tag::VARIABLE => {
            Definition::Variable(Variable { id: input.u32()?, name: input.string()?, value: input.string()? })
        }
        tag::GRAPH_CONTINUED => {
            return Ok(Piece::GraphContinued { id: input.u32()?, kernels: input.list(Input::u32_pair)? });
        }
        _ => return Ok(Piece::Unknown),
    };
    Ok(Piece::Whole(definition))
}

fn stream_kind(raw: u32) -> Result<StreamKind, String> {
    use StreamKind::{Blocking, LegacyDefault, NonBlocking, PerThreadDefault};
    [LegacyDefault, PerThreadDefault, Blocking, NonBlocking]
        .into_iter()
        .find(|kind| *kind as u32 == raw)
        .ok_or_else(|| format!("a stream of the unknown kind {raw}"))
}

pub(crate) struct Input<'p>(pub &'p [u8]);

impl<'p> Input<'p> {
    fn bytes(&mut self, count: usize) -> Result<&'p [u8], String> {
        let (bytes, rest) = self
            .0
            .split_at_checked(count)
            .ok_or_else(|| format!("it needs {count} bytes more where {} are left", self.0.len()))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn dim3(&mut self) -> Result<Dim3, String> {
        Ok(Dim3 { x: self.u32()?, y: self.u32()?, z: self.u32()? })
    }

    /// Attributes, and a word that is 0 where they could not be read.
    fn function_attributes(&mut self) -> Result<Option<FunctionAttributes>, String> {
        let attributes = FunctionAttributes {
            registers: self.u32()?,
            static_shared_bytes: self.u32()?,
            local_bytes: self.u32()?,
            constant_bytes: self.u32()?,
            max_threads_per_block: self.u32()?,
            max_dynamic_shared_bytes: Some(self.u32()?),
            carveout: Carveout::from_attribute(self.u32()? as i32),
            binary_version: self.u32()?,
            ptx_version: self.u32()?,
            barriers: 0,
        };
        Ok((self.u32()? != 0).then_some(attributes))
    }

    fn u32_pair(&mut self) -> Result<(u32, u32), String> {
        Ok((self.u32()?, self.u32()?))
    }

    fn pointer(&mut self) -> Result<Pointer, String> {
        Ok(Pointer {
            at: self.u32()?,
            allocation: self.u32()?,
            allocation_bytes: self.u64()?,
            offset: self.u64()?,
        })
    }

    fn native_frame(&mut self) -> Result<NativeFrame, String> {
        Ok(NativeFrame { module: self.u32()?, address: self.u64()? })
    }

    pub(crate) fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Result<u128, String> {
        self.array().map(u128::from_le_bytes)
    }

    /// Reads a number that [`Output::short`] wrote.
    pub(crate) fn short(&mut self) -> Result<u64, String> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let [byte] = self.array()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a number of more than 64 bits".to_owned())
    }

    pub(crate) fn string(&mut self) -> Result<String, String> {
        let count = self.u32()? as usize;
        match std::str::from_utf8(self.bytes(count)?) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => Err(format!("a name that is not UTF-8 from its byte {} on", error.valid_up_to())),
        }
    }

    fn blob(&mut self) -> Result<Vec<u8>, String> {
        let count = self.u32()? as usize;
        self.bytes(count).map(<[u8]>::to_vec)
    }

    /// Entries are read as they come, so an absurd count fails where the bytes end and reserves
    /// nothing.
    pub(crate) fn list<T>(
        &mut self,
        entry: impl Fn(&mut Self) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let count = self.u32()?;
        (0..count).map(|_| entry(self)).collect()
    }
}
