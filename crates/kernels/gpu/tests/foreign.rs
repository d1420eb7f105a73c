//! Streams and memory that somebody else has made, here by the driver's own calls.

mod common;

use apex_gpu::{Buffer, Device, Tensor};
use common::device;
use cudarc::driver::{result, sys};

/// Memory of the driver, with these numbers.
fn theirs(device: &Device, values: &[f32]) -> sys::CUdeviceptr {
    device.cuda().bind_to_thread().unwrap();
    // SAFETY: as many bytes are allocated as are copied.
    unsafe {
        let address = result::malloc_sync(size_of_val(values)).unwrap();
        result::memcpy_htod_sync(address, values).unwrap();
        address
    }
}

/// Reads memory that they own and frees it.
fn taken_back(address: sys::CUdeviceptr, len: usize) -> Vec<f32> {
    let mut values = vec![f32::NAN; len];
    // SAFETY: the memory holds `len` numbers, and no work uses it any more.
    unsafe {
        result::memcpy_dtoh_sync(&mut values, address).unwrap();
        result::free_sync(address).unwrap();
    }
    values
}

fn borrow(device: &Device, address: u64, len: usize) -> Buffer<f32> {
    // SAFETY: tests leave the memory alone until the buffer is dropped.
    unsafe { device.borrow_buffer(address, len, device.stream()).unwrap() }
}

#[test]
fn memory_is_used_in_place_and_freed_by_its_owner() {
    let device = device();
    let address = theirs(&device, &[1.0, 2.0, 3.0, 4.0]);
    let mut buffer = borrow(&device, address, 4);
    assert_eq!((buffer.address(), buffer.len(), buffer.device().ordinal()), (address, 4, 0));
    assert_eq!(buffer.to_vec().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    buffer.slice_mut(1..3).write(&[7.0, 8.0]).unwrap();
    // A tensor over it, and a view that outlives the tensor.
    let tensor = Tensor::from_buffer(buffer, (2, 2)).unwrap();
    let column = tensor.slice(1, 0..1).unwrap();
    let product = tensor.matmul(&tensor).unwrap();
    drop(tensor);
    assert_eq!(product.to_vec().unwrap(), [57.0, 35.0, 40.0, 72.0]);
    assert_eq!(column.to_vec().unwrap(), [1.0, 8.0]);
    drop(column);
    assert_eq!(taken_back(address, 4), [1.0, 7.0, 8.0, 4.0]);
}

#[test]
fn nothing_at_no_address_is_a_buffer_too() {
    assert_eq!(borrow(&device(), 0, 0).to_vec().unwrap(), []);
}

#[test]
#[should_panic = "address 0x402 is not a multiple of 4"]
fn an_address_between_elements_is_refused() {
    borrow(&device(), 0x402, 0);
}

#[test]
fn a_stream_is_used_and_destroyed_by_its_owner() {
    let device = device();
    device.cuda().bind_to_thread().unwrap();
    let theirs = result::stream::create(result::stream::StreamKind::NonBlocking).unwrap();
    // SAFETY: it is destroyed below, when nothing here has it any more.
    let stream = unsafe { device.borrow_stream(theirs.cast()) };
    let mut buffer = device.upload_on(&[1.0f32; 1000], &stream).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [1.0; 1000]); // on the device's own
    buffer.clear_on(&stream).unwrap();
    assert!(stream != *device.stream());
    stream.synchronize().unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [0.0; 1000]);
    drop((buffer, stream));
    // SAFETY: the stream has not been destroyed, and nobody has it.
    unsafe {
        result::stream::synchronize(theirs).unwrap();
        result::stream::destroy(theirs).unwrap();
    }
}

#[test]
fn the_default_stream_is_null() {
    let device = device();
    // SAFETY: it lives as long as the device's context.
    let stream = unsafe { device.borrow_stream(std::ptr::null_mut()) };
    let address = theirs(&device, &[5.0, 6.0]);
    // SAFETY: nobody uses the memory until the buffer is dropped.
    let mut buffer = unsafe { device.borrow_buffer::<f32>(address, 2, &stream).unwrap() };
    buffer.write_on(&[8.0, 9.0], &stream).unwrap();
    drop(buffer);
    stream.synchronize().unwrap();
    assert_eq!(taken_back(address, 2), [8.0, 9.0]);
}

#[test]
fn what_the_owner_does_afterwards_waits_for_uses_on_other_streams() {
    let device = device();
    device.cuda().bind_to_thread().unwrap();
    let (owner, other) = (device.new_stream().unwrap(), device.new_stream().unwrap());
    let address = theirs(&device, &[0.0; 4096]);
    // SAFETY: the owner's stream outlives what is borrowed, and its copy below is given to it
    // later.
    let mut buffer = unsafe {
        let stream = device.borrow_stream(owner.cuda().cu_stream().cast());
        device.borrow_buffer::<f32>(address, 4096, &stream).unwrap()
    };
    buffer.write_on(&vec![3.0; 4096], &other).unwrap();
    drop(buffer);
    let mut found = vec![0.0f32; 4096];
    // SAFETY: `found` lives until the stream has done the copy.
    unsafe { result::memcpy_dtoh_async(&mut found, address, owner.cuda().cu_stream()).unwrap() };
    owner.synchronize().unwrap();
    assert_eq!(found, [3.0; 4096]);
    taken_back(address, 0);
}

#[test]
fn a_graph_uses_what_was_borrowed_while_it_was_captured_and_frees_nothing() {
    let device = device();
    let (stream, address) = (device.new_stream().unwrap(), theirs(&device, &[1.0, 2.0]));
    let (graph, ()) = stream
        .capture(|| {
            // SAFETY: the memory lives until the graph is dropped and has been waited for.
            let mut buffer = unsafe { device.borrow_buffer::<f32>(address, 2, &stream)? };
            buffer.slice_mut(1..).clear_on(&stream)
        })
        .unwrap();
    stream.synchronize().unwrap();
    graph.launch().unwrap();
    stream.synchronize().unwrap();
    drop(graph);
    assert_eq!(taken_back(address, 2), [1.0, 0.0]);
}
