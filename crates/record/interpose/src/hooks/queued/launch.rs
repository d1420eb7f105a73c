//! Kernel launches. Parameters and attributes are copied; whatever else a launch refers to keeps it
//! from being queued.

use super::super::{observe, reshaped};
use super::taking;
use crate::actions::fusion;
use crate::actions::queue::accepted::{Layout, PARAMETER_BYTES, Print};
use crate::actions::queue::batch::{Behind, Node, OfLaunch};
use crate::actions::queue::{self, Kind, LARGEST_BYTES, Queue, Scratch, Taking};
use crate::driver;
use crate::parameters::{Buffer, buffer_of};
use crate::record::Done;
use crate::record::arguments::Passed;
use crate::record::launch::Launch;
use crate::switch::guarded;
use crate::tables::spread;
use cuda_abi::index;
use cuda_abi::types::*;
use cuda_launch::{Dim3, LaunchConfig};
use std::ffi::c_void;
use std::ptr::{copy_nonoverlapping, null_mut};

/// Most attributes of a launch that is queued.
const ATTRIBUTES: usize = 16;
/// Alignment of parameters in the ring.
const ALIGNMENT: usize = 16;

const _: () = assert!(
    size_of::<Copied>() + ATTRIBUTES * size_of::<CUlaunchAttribute>() + ALIGNMENT + PARAMETER_BYTES
        <= LARGEST_BYTES
);

/// A launch as the program asks for it.
#[derive(Clone, Copy)]
struct Asked<'a> {
    function: CUfunction,
    /// Grid, block, and bytes of dynamic shared memory.
    dimensions: [u32; 7],
    stream: CUstream,
    attributes: &'a [CUlaunchAttribute],
    /// As the program gave them: an address for each parameter, or one buffer with all of them.
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
}

pub unsafe extern "C" fn kernel<const INDEX: usize>(
    function: CUfunction,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: CUstream,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    let dimensions = [grid_x, grid_y, grid_z, block_x, block_y, block_z, shared];
    let asked = Asked { function, dimensions, stream, attributes: &[], parameters, extra };
    // SAFETY: the contract of every hook; the ordinary hook is entered with the program's own
    // arguments.
    unsafe {
        hand_over::<INDEX>(asked, &Kinds::<INDEX>::KERNEL).unwrap_or_else(|caller| {
            caller.makes(function, || {
                reshaped::kernel::<INDEX>(
                    function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters,
                    extra,
                )
            })
        })
    }
}

pub unsafe extern "C" fn kernel_ex<const INDEX: usize>(
    config: *const CUlaunchConfig,
    function: CUfunction,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    // SAFETY: the contract of every hook: null, or what the driver reads.
    let asked = unsafe { config.as_ref() }.map(|config| Asked {
        function,
        dimensions: [
            config.gridDimX,
            config.gridDimY,
            config.gridDimZ,
            config.blockDimX,
            config.blockDimY,
            config.blockDimZ,
            config.sharedMemBytes,
        ],
        stream: config.hStream,
        // SAFETY: likewise the attributes that it points to.
        attributes: unsafe { attributes_of(config) },
        parameters,
        extra,
    });
    // SAFETY: the contract of every hook; the ordinary hook is entered with the program's own
    // arguments.
    unsafe {
        let handed_over = asked
            .map_or(Err(Caller::default()), |asked| hand_over::<INDEX>(asked, &Kinds::<INDEX>::KERNEL_EX));
        handed_over.unwrap_or_else(|caller| {
            caller.makes(function, || reshaped::kernel_ex::<INDEX>(config, function, parameters, extra))
        })
    }
}

/// The caller makes the launch itself.
#[derive(Default)]
struct Caller {
    /// The queue, which has to be empty first; none where nothing can wait.
    queue: Option<&'static Queue>,
    /// The note about a launch that succeeds.
    note: Option<Note>,
}

struct Note {
    print: Print,
    function: CUfunction,
    epoch: u32,
}

impl Caller {
    #[cold]
    fn makes(self, function: CUfunction, launch: impl FnOnce() -> CUresult) -> CUresult {
        let Some(queue) = self.queue else { return launch() };
        queue.wait_until_made();
        let result = launch();
        if result == CUDA_SUCCESS {
            fusion::meet(function);
        }
        if let Some(Note { print, function, epoch }) = self.note
            && result == CUDA_SUCCESS
        {
            guarded(|| queue.accepted.note_launch(print, function, epoch));
        }
        result
    }
}

/// Hands a launch over. `Err` if the caller makes it.
///
/// # Safety
/// What `asked` points to meets the contract of the entry point at `INDEX`, whose launches are of
/// this kind.
#[inline(always)]
unsafe fn hand_over<const INDEX: usize>(asked: Asked, kind: &'static Kind) -> Result<CUresult, Caller> {
    let Some((queue, taking)) = taking::<INDEX>(asked.stream) else {
        // An error that came before the queue was closed for it.
        return queue::existing().and_then(Queue::take_refusal).ok_or_else(Caller::default);
    };
    let waits = Caller { queue: Some(queue), note: None };
    if taking != Taking::Takes {
        return Err(waits);
    }
    let begun = queue.asked_sample();
    // SAFETY: by contract.
    let (Some(attributes), Some(buffer)) =
        (attribute_print(asked.attributes), unsafe { buffer_of(asked.extra) })
    else {
        return Err(waits);
    };
    let context = driver::current_context();
    let (epochs, epoch) = (queue.epoch(), queue.code_epoch());
    let print = asked.print(INDEX, context, epochs, attributes);
    let known = queue.accepted.launch(print, asked.function, epoch);
    let Some(layout) = known.filter(|layout| asked.has_parameters_of(layout, &buffer)) else {
        return Err(Caller { note: Some(Note { print, function: asked.function, epoch }), ..waits });
    };
    let bytes = Copied::bytes(&asked, layout, &buffer);
    // SAFETY: there is room for so many bytes, and the layout is that of the function's parameters.
    let write = |to: *mut u8| unsafe { Copied::write(to, &asked, print, layout, &buffer) };
    if !queue.put(kind, context, bytes, write) {
        return Err(waits);
    }
    if let Some(begun) = begun {
        queue.add_asked_sample(begun);
    }
    Ok(CUDA_SUCCESS)
}

impl Asked<'_> {
    #[inline(always)]
    fn print(&self, index: usize, context: CUcontext, epochs: u64, attributes: u64) -> Print {
        let two = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let [a, b, c, d, e, f, g] = self.dimensions;
        Print::of([
            [index as u64, self.function as u64],
            [self.stream as u64, context as u64],
            [epochs, attributes],
            [two(a, b), two(c, d)],
            [two(e, f), u64::from(g)],
        ])
    }

    /// Whether the program gives its parameters in a form in which they can be copied.
    #[inline(always)]
    fn has_parameters_of(&self, layout: &Layout, buffer: &Buffer) -> bool {
        match buffer {
            Buffer::None => layout.parameters().is_empty() || !self.parameters.is_null(),
            Buffer::At(_, bytes) => *bytes <= PARAMETER_BYTES,
        }
    }
}

/// The attributes of a launch.
///
/// # Safety
/// `config.attrs` is null or points to `config.numAttrs` attributes.
#[inline(always)]
unsafe fn attributes_of(config: &CUlaunchConfig) -> &[CUlaunchAttribute] {
    if config.attrs.is_null() || config.numAttrs == 0 {
        return &[];
    }
    // SAFETY: by contract.
    unsafe { std::slice::from_raw_parts(config.attrs, config.numAttrs as usize) }
}

/// Returns a fingerprint of the attributes; `None` if one of them refers to something that is not
/// copied, or is not known.
#[inline(always)]
fn attribute_print(attributes: &[CUlaunchAttribute]) -> Option<u64> {
    if attributes.is_empty() {
        return Some(0);
    }
    print_of(attributes)
}

#[cold]
fn print_of(attributes: &[CUlaunchAttribute]) -> Option<u64> {
    if attributes.len() > ATTRIBUTES {
        return None;
    }
    attributes.iter().try_fold(1, |print, attribute| {
        let value = (&raw const attribute.value).cast::<u32>();
        let words = value_words(attribute.id)?;
        // SAFETY: the member of the union that the identifier names has so many words, all of which
        // the program set.
        let word = |at| u64::from(unsafe { value.add(at).read_unaligned() });
        Some((0..words).fold(spread(print ^ u64::from(attribute.id)), |print, at| spread(print ^ word(at))))
    })
}

/// 32-bit words of an attribute's value that mean something; `None` if it cannot be copied.
fn value_words(attribute: CUlaunchAttributeID) -> Option<usize> {
    Some(match attribute {
        CU_LAUNCH_ATTRIBUTE_IGNORE => 0,
        CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
        | CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE
        | CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        | CU_LAUNCH_ATTRIBUTE_PRIORITY
        | CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN
        | CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => 1,
        CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION | CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION => 3,
        _ => return None,
    })
}

/// The beginning of a launch's arguments in the ring. The attributes follow, then the parameters.
#[repr(C)]
struct Copied {
    print: Print,
    layout: &'static Layout,
    function: CUfunction,
    stream: CUstream,
    dimensions: [u32; 7],
    attributes: u32,
    /// Bytes of the program's own buffer of parameters; `usize::MAX` if it gave an address for each
    /// of them.
    buffer_bytes: usize,
}

const NO_BUFFER: usize = usize::MAX;

impl Copied {
    /// Returns the offset of the parameters.
    #[inline(always)]
    const fn parameters_at(attributes: usize) -> usize {
        (size_of::<Copied>() + attributes * size_of::<CUlaunchAttribute>()).next_multiple_of(ALIGNMENT)
    }

    /// Bytes that a launch takes in the ring.
    #[inline(always)]
    fn bytes(asked: &Asked, layout: &Layout, buffer: &Buffer) -> usize {
        let parameters = match *buffer {
            Buffer::None => layout.bytes,
            Buffer::At(_, bytes) => bytes,
        };
        Copied::parameters_at(asked.attributes.len()) + parameters
    }

    /// Copies a launch.
    ///
    /// # Safety
    /// `to` has room for [`Copied::bytes`], aligned to 8 bytes. `layout` is that of the function's
    /// parameters, and the program's pointers are valid.
    #[inline(always)]
    unsafe fn write(to: *mut u8, asked: &Asked, print: Print, layout: &'static Layout, buffer: &Buffer) {
        let count = asked.attributes.len();
        // SAFETY: by contract.
        unsafe {
            let parameters = to.add(Copied::parameters_at(count));
            let buffer_bytes = match *buffer {
                Buffer::None => {
                    for (at, parameter) in layout.parameters().iter().enumerate() {
                        let from = (*asked.parameters.add(at)).cast::<u8>();
                        let to = parameters.add(parameter.offset as usize);
                        match parameter.bytes {
                            // (The compiler makes these one move each.)
                            8 => copy_nonoverlapping(from, to, 8),
                            4 => copy_nonoverlapping(from, to, 4),
                            bytes => copy_nonoverlapping(from, to, bytes as usize),
                        }
                    }
                    NO_BUFFER
                }
                Buffer::At(from, bytes) => {
                    copy_nonoverlapping(from, parameters, bytes);
                    bytes
                }
            };
            let copied = to.add(size_of::<Copied>()).cast::<CUlaunchAttribute>();
            copy_nonoverlapping(asked.attributes.as_ptr(), copied, count);
            to.cast::<Copied>().write(Copied {
                print,
                layout,
                function: asked.function,
                stream: asked.stream,
                dimensions: asked.dimensions,
                attributes: count as u32,
                buffer_bytes,
            });
        }
    }
}

/// The kinds of launches that are queued.
struct Kinds<const INDEX: usize>;

impl<const INDEX: usize> Kinds<INDEX> {
    const KERNEL: Kind =
        Kind { make: make_kernel::<INDEX>, launch: Some(OfLaunch { node, record: record::<INDEX>, join }) };
    const KERNEL_EX: Kind = Kind {
        make: make_kernel_ex::<INDEX>,
        launch: Some(OfLaunch { node, record: record::<INDEX>, join }),
    };
}

/// A launch as a batch sees it; `None` for those with attributes, and those whose parameters come
/// in a buffer of the program's own form.
///
/// # Safety
/// [`Copied::write`] wrote the arguments.
unsafe fn node(arguments: *mut u8) -> Option<Node> {
    // SAFETY: by contract.
    let copied = unsafe { &*arguments.cast::<Copied>() };
    let &Copied { print, function, dimensions, stream, layout, .. } = copied;
    // SAFETY: the parameters follow.
    let parameters = unsafe { arguments.add(Copied::parameters_at(0)) };
    let is_plain = copied.attributes == 0 && copied.buffer_bytes == NO_BUFFER;
    is_plain.then_some(Node { print, function, dimensions, stream, layout, parameters })
}

/// Makes two launches as one of a joined kernel, if the plan has it and its condition holds.
///
/// # Safety
/// [`Copied::write`] wrote the arguments of both.
unsafe fn join(context: CUcontext, first: *mut u8, (node_of, second): Behind) -> bool {
    // SAFETY: by contract.
    let nodes = unsafe { node(first).zip(node_of(second)) };
    let Some((first, second)) = nodes else { return false };
    let mut parameters = [0; fusion::MOST_BYTES];
    let Some(joined) = fusion::joined(context, [&first, &second], &mut parameters) else { return false };
    let mut bytes = joined.bytes;
    let mut extra = [
        CU_LAUNCH_PARAM_BUFFER_POINTER,
        parameters.as_mut_ptr().cast(),
        CU_LAUNCH_PARAM_BUFFER_SIZE,
        (&raw mut bytes).cast(),
        CU_LAUNCH_PARAM_END,
    ];
    let [gx, gy, gz, bx, by, bz, shared] = first.dimensions;
    let (stream, none) = (first.stream, null_mut());
    // SAFETY: a kernel of the plan with its parameters, in the program's stream, grid and block.
    // (A thread's own default stream is never queued, so the stream means the same in this form.)
    let result = unsafe {
        super::super::launch::kernel::<{ index::cuLaunchKernel }>(
            joined.function,
            gx,
            gy,
            gz,
            bx,
            by,
            bz,
            shared,
            stream,
            none,
            extra.as_mut_ptr(),
        )
    };
    joined.is_done(result);
    result == CUDA_SUCCESS
}

/// Records a launch that went out in a batch.
///
/// # Safety
/// [`Copied::write`] wrote the arguments.
unsafe fn record<const INDEX: usize>(arguments: *mut u8, start: u64, end: u64) {
    // SAFETY: by contract.
    let copied = unsafe { &*arguments.cast::<Copied>() };
    let [gx, gy, gz, bx, by, bz, dynamic_shared_bytes] = copied.dimensions;
    let (grid, block) = (Dim3::new(gx, gy, gz), Dim3::new(bx, by, bz));
    let config = LaunchConfig { grid, block, cluster: Dim3::ZERO, dynamic_shared_bytes };
    let (function, stream) = (copied.function, copied.stream);
    // (Arguments are kept of timed launches alone, and none of a batch is timed.)
    let passed = Passed::UNKNOWN;
    let asked = Launch { function, config, stream, block: None, flags: 0, can_be_timed: true, passed };
    observe::launched_with_others::<INDEX>(asked, Done { start, end, result: CUDA_SUCCESS });
}

/// Makes the launch that was copied to `arguments` by `launch`, which is given the two ways to name
/// parameters.
///
/// # Safety
/// [`Copied::write`] wrote the arguments.
#[inline(always)]
unsafe fn make(
    arguments: *mut u8,
    scratch: &mut Scratch,
    launch: impl FnOnce(&Copied, *mut *mut c_void, *mut *mut c_void) -> CUresult,
) -> CUresult {
    // SAFETY: by contract.
    let copied = unsafe { &*arguments.cast::<Copied>() };
    // SAFETY: the parameters follow the attributes.
    let parameters = unsafe { arguments.add(Copied::parameters_at(copied.attributes as usize)) };
    if copied.buffer_bytes != NO_BUFFER {
        let mut bytes = copied.buffer_bytes;
        let mut extra = [
            CU_LAUNCH_PARAM_BUFFER_POINTER,
            parameters.cast(),
            CU_LAUNCH_PARAM_BUFFER_SIZE,
            (&raw mut bytes).cast(),
            CU_LAUNCH_PARAM_END,
        ];
        return launch(copied, null_mut(), extra.as_mut_ptr());
    }
    for (pointer, parameter) in scratch.pointers.iter_mut().zip(copied.layout.parameters()) {
        // SAFETY: within what was copied.
        *pointer = unsafe { parameters.add(parameter.offset as usize) }.cast();
    }
    launch(copied, scratch.pointers.as_mut_ptr(), null_mut())
}

/// # Safety
/// [`Copied::write`] wrote the arguments for `cuLaunchKernel`.
unsafe fn make_kernel<const INDEX: usize>(arguments: *mut u8, scratch: &mut Scratch) -> CUresult {
    // SAFETY: by contract; the ordinary hook is entered with arguments like the program's.
    unsafe {
        make(arguments, scratch, |copied, parameters, extra| {
            let [gx, gy, gz, bx, by, bz, shared] = copied.dimensions;
            let (function, stream) = (copied.function, copied.stream);
            reshaped::kernel::<INDEX>(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra)
        })
    }
}

/// # Safety
/// [`Copied::write`] wrote the arguments for `cuLaunchKernelEx`.
unsafe fn make_kernel_ex<const INDEX: usize>(arguments: *mut u8, scratch: &mut Scratch) -> CUresult {
    // SAFETY: by contract; the ordinary hook is entered with arguments like the program's.
    unsafe {
        let attributes = arguments.add(size_of::<Copied>()).cast::<CUlaunchAttribute>();
        make(arguments, scratch, |copied, parameters, extra| {
            let [grid_x, grid_y, grid_z, block_x, block_y, block_z, shared] = copied.dimensions;
            let config = CUlaunchConfig {
                gridDimX: grid_x,
                gridDimY: grid_y,
                gridDimZ: grid_z,
                blockDimX: block_x,
                blockDimY: block_y,
                blockDimZ: block_z,
                sharedMemBytes: shared,
                hStream: copied.stream,
                attrs: attributes,
                numAttrs: copied.attributes,
            };
            reshaped::kernel_ex::<INDEX>(&config, copied.function, parameters, extra)
        })
    }
}
