//! Graphs: captured work runs when it is launched, as often as it is, with what it was given.

mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};

use apex_gpu::{Device, Error, Graph, Kernel, Tensor};

/// The device, for one test at a time: a capture takes in what other threads give to its stream.
fn device() -> (Device, MutexGuard<'static, ()>) {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    (common::device(), alone)
}

fn saxpy() -> Kernel {
    common::device().load_ptx(include_str!("kernels.ptx")).unwrap().kernel("saxpy").unwrap()
}

#[test]
fn a_graph_keeps_what_it_uses() {
    let (device, _alone) = device();
    let mut y = device.zeros::<f32>(3).unwrap();
    let graph: Graph = {
        // Kernel, module, input and the uploaded values are gone when the graph is launched.
        let (saxpy, x) = (saxpy(), device.upload(&[1.0f32, 2.0, 3.0]).unwrap());
        let capture = device.stream().capture(|| {
            let values = vec![10.0f32; 3];
            let uploaded = device.upload(&values)?;
            for from in [&x, &uploaded] {
                // SAFETY: both buffers have three elements.
                unsafe { saxpy.over(3).arg(1.0f32).arg(3u32).arg(from).arg(&mut y).launch()? };
            }
            Ok(())
        });
        capture.unwrap().0
    };
    assert_eq!(y.to_vec().unwrap(), [0.0; 3], "nothing has run");
    // Memory that is allocated now must not be the graph's.
    let others: Vec<_> = (0..20).map(|_| device.upload(&[-1.0f32; 3]).unwrap()).collect();
    graph.launch().unwrap();
    graph.launch_on(&device.new_stream().unwrap()).unwrap();
    assert_eq!(y.to_vec().unwrap(), [22.0, 24.0, 26.0]);
    assert!(others.iter().all(|other| other.to_vec().unwrap() == [-1.0; 3]));
    assert!(format!("{graph:?}").starts_with("Graph(3 nodes, on "), "{graph:?}");
}

#[test]
fn tensors_are_captured_with_their_temporaries() {
    let (device, _alone) = device();
    let x = Tensor::new(&device, &[1.0f32, 2.0, 3.0, 4.0], (2, 2)).unwrap();
    let mut w = Tensor::new(&device, &[1.0f32, 0.0, 0.0, 1.0], (2, 2)).unwrap();
    let (graph, loss) = device
        .stream()
        .capture(|| {
            let y = (x.matmul(&w)? * 2.0)?;
            let loss = y.sum_all()?;
            w.copy_from(&(&w + &w)?)?;
            Ok(loss)
        })
        .unwrap();
    let mut expected = 20.0;
    for _ in 0..4 {
        graph.launch().unwrap();
        assert_eq!(loss.item().unwrap(), expected);
        expected *= 2.0;
    }
    assert_eq!(w.to_vec().unwrap(), [16.0, 0.0, 0.0, 16.0]);
}

#[test]
fn an_update_exchanges_arguments_or_the_whole_work() {
    let (device, _alone) = device();
    let saxpy = saxpy();
    let x = device.upload(&[1.0f32; 4]).unwrap();
    let mut y = device.zeros::<f32>(4).unwrap();
    let mut add = |times: usize, factor: f32| {
        for _ in 0..times {
            // SAFETY: both buffers have four elements.
            unsafe { saxpy.over(4).arg(factor).arg(4u32).arg(&x).arg(&mut y).launch()? };
        }
        Ok(())
    };
    let (mut graph, ()) = device.stream().capture(|| add(1, 1.0)).unwrap();
    graph.launch().unwrap();
    graph.update(|| add(1, 10.0)).unwrap();
    graph.launch().unwrap();
    graph.update(|| add(3, 100.0)).unwrap();
    graph.launch().unwrap();
    // A failed update leaves the graph as it was.
    graph.update(|| device.stream().synchronize()).unwrap_err();
    graph.launch().unwrap();
    assert_eq!(y.to_vec().unwrap(), [611.0; 4]);
}

#[test]
fn what_no_graph_can_hold_is_refused_and_the_stream_goes_on() {
    let (device, _alone) = device();
    let mut buffer = device.upload(&[1u32, 2]).unwrap();
    let (inner, ()) = device.stream().capture(|| Ok(())).unwrap();
    let mut pinned = device.pinned::<u32>(2).unwrap();
    let stream = device.stream();
    let refused = |error: Error| {
        assert!(matches!(error, Error::NotInCapture { .. }), "{error}");
        assert!(error.to_string().contains("cannot be captured in a graph; "), "{error}");
    };
    refused(stream.capture(|| buffer.to_vec()).unwrap_err());
    refused(stream.capture(|| buffer.view().read_pinned(&mut pinned, stream)).unwrap_err());
    refused(stream.capture(|| buffer.view_mut().write_pinned(&mut pinned, stream)).unwrap_err());
    refused(stream.capture(|| stream.synchronize()).unwrap_err());
    refused(stream.capture(|| inner.launch()).unwrap_err());
    refused(stream.capture(|| stream.capture(|| Ok(()))).unwrap_err());
    let unwound =
        std::panic::catch_unwind(|| stream.capture(|| -> apex_gpu::Result<()> { panic!("in the work") }));
    assert!(unwound.is_err());
    buffer.write(&[3, 4]).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [3, 4]);
}

#[test]
fn what_is_dropped_in_a_capture_is_freed_after_it() {
    let (device, _alone) = device();
    let (free, _) = device.memory().unwrap();
    let bytes = 8 << 20;
    for _ in 0..20 {
        let before = device.zeros::<u8>(bytes).unwrap();
        let (graph, ()) = device
            .stream()
            .capture(|| {
                drop(before);
                drop(device.zeros::<u8>(bytes)?);
                Ok(())
            })
            .unwrap();
        graph.launch().unwrap();
    }
    device.trim().unwrap();
    let (left, _) = device.memory().unwrap();
    assert!(free.saturating_sub(left) < 10 * bytes, "of {free} bytes {left} are left");
}

#[test]
fn other_streams_are_ordered_around_launches_and_not_captured() {
    let (device, _alone) = device();
    let other = device.new_stream().unwrap();
    let mut shared = device.upload(&[1.0f32, 1.0]).unwrap();
    let x = device.upload(&[1.0f32, 1.0]).unwrap();
    let saxpy = saxpy();
    let (graph, ()) = device
        .stream()
        .capture(|| {
            // SAFETY: both buffers have two elements.
            unsafe { saxpy.over(2).arg(1.0f32).arg(2u32).arg(&x).arg(&mut shared).launch()? };
            // On another stream this runs at once, after what was done before the capture.
            shared.write_on(&[5.0, 5.0], &other)
        })
        .unwrap();
    assert_eq!(shared.view().to_vec().unwrap(), [5.0, 5.0]);
    for round in 0..10 {
        shared.write_on(&[round as f32; 2], &other).unwrap();
        graph.launch().unwrap();
        let mut values = [0.0; 2];
        shared.view().read_on(&mut values, &other).unwrap();
        assert_eq!(values, [round as f32 + 1.0; 2]);
    }
}
