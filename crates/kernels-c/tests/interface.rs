//! The C interface as a C program calls it, on the CPU device: what it computes, what it refuses,
//! what it leaves as it was.

use std::ffi::{CStr, CString};
use std::ptr::null_mut;

use apex_gpu::{Buffer, Device};
use apex_kernels_c::{Call, Tensor, VERSION, apex_kernels_run, apex_kernels_version};
use apex_kernels_c::{apex_kernels_workspace, element, status};
use cudarc::driver::sys;
use half::f16;

const MESSAGE: usize = 400;

/// An operation, and what it is called with.
struct Asked {
    operation: &'static str,
    tensors: Vec<Tensor>,
    integers: Vec<i64>,
    numbers: Vec<f64>,
    workspace: Option<(u64, u64)>,
}

impl Asked {
    fn call(&self) -> Call {
        let (workspace, workspace_bytes) = self.workspace.unwrap_or_default();
        Call {
            version: VERSION,
            device: 0,
            stream: null_mut(),
            tensors: self.tensors.as_ptr(),
            tensor_count: self.tensors.len(),
            integers: self.integers.as_ptr(),
            integer_count: self.integers.len(),
            numbers: self.numbers.as_ptr(),
            number_count: self.numbers.len(),
            workspace,
            workspace_bytes,
        }
    }

    fn run(&self) -> (i32, String) {
        run(self.operation, &self.call())
    }

    /// Bytes of the workspace.
    fn needs(&self) -> u64 {
        let (name, mut bytes) = (CString::new(self.operation).unwrap(), 0);
        // SAFETY: the arrays live as long as the call, and no message has room.
        let code = unsafe { apex_kernels_workspace(name.as_ptr(), &self.call(), &mut bytes, null_mut(), 0) };
        assert_eq!(code, 0);
        bytes
    }
}

fn run(operation: &str, call: &Call) -> (i32, String) {
    let name = CString::new(operation).unwrap();
    let mut message = [1u8; MESSAGE];
    // SAFETY: tensors are buffers of the device, the stream is the default one, and the message has
    // as much room.
    let code = unsafe { apex_kernels_run(name.as_ptr(), call, message.as_mut_ptr().cast(), MESSAGE) };
    let message = CStr::from_bytes_until_nul(&message).map(|text| text.to_string_lossy().into_owned());
    (code, message.unwrap_or_default())
}

fn tensor(buffer: &Buffer<f16>) -> Tensor {
    Tensor { address: buffer.address(), elements: buffer.len() as u64, element: element::F16, reserved: 0 }
}

fn sums(buffer: &Buffer<f32>) -> Tensor {
    Tensor { address: buffer.address(), elements: buffer.len() as u64, element: element::F32, reserved: 0 }
}

/// One query against `keys` keys of ones, whose values are all 3.
struct Decode {
    inputs: [Buffer<f16>; 3],
    output: Buffer<f16>,
    sums: Buffer<f32>,
    keys: usize,
}

impl Decode {
    fn new(device: &Device, keys: usize) -> Decode {
        let full = |len, value| device.upload(&vec![f16::from_f32(value); len]).unwrap();
        Decode {
            inputs: [full(64, 1.0), full(keys * 64, 1.0), full(keys * 64, 3.0)],
            output: full(64, f32::NAN),
            sums: device.upload(&[f32::NAN]).unwrap(),
            keys,
        }
    }

    fn asked(&self) -> Asked {
        let [q, k, v] = &self.inputs;
        let tensors = vec![tensor(q), tensor(k), tensor(v), tensor(&self.output), sums(&self.sums)];
        let integers = vec![1, 1, 1, 1, self.keys as i64, 64, 0, 0, -1, -1, 0];
        Asked { operation: "attention_forward", tensors, integers, numbers: vec![0.125], workspace: None }
    }
}

#[test]
fn a_call_computes_with_and_without_a_workspace_and_says_the_form() {
    let device = Device::open(0).unwrap();
    for (keys, form) in [(5, 1), (2000, 3)] {
        let decode = Decode::new(&device, keys);
        let needed = decode.asked().needs();
        let workspace = device.upload(&vec![f32::NAN; needed as usize / 4]).unwrap();
        for workspace in [None, Some((workspace.address(), needed))] {
            device.synchronize().unwrap();
            assert_eq!(Asked { workspace, ..decode.asked() }.run().0, form);
            device.synchronize().unwrap();
            assert!(decode.output.to_vec().unwrap().iter().all(|&x| x == f16::from_f32(3.0)));
            assert!((decode.sums.to_vec().unwrap()[0] - (8.0 + (keys as f32).ln())).abs() < 1e-3);
        }
    }
}

#[test]
fn what_is_wrong_is_said_and_nothing_is_launched() {
    let device = Device::open(0).unwrap();
    let decode = Decode::new(&device, 2000);
    let needed = decode.asked().needs();
    let refused = |change: fn(&mut Asked, u64), message: &str| {
        let mut asked = decode.asked();
        change(&mut asked, needed);
        let (code, said) = asked.run();
        assert_eq!(code, status::INVALID, "{said}");
        assert!(said.contains(message), "{said}");
    };
    refused(|asked, _| asked.operation = "attend", "no operation `attend`; there are attention_forward,");
    refused(|asked, _| asked.tensors.truncate(4), "takes 5 tensors, not 4");
    refused(|asked, _| asked.integers.push(1), "takes 11 integers, not 12");
    refused(|asked, _| asked.numbers.clear(), "takes 1 numbers, not 0");
    refused(
        |asked, _| asked.tensors[1].element = element::BF16,
        "elements of `k` must be those of the first",
    );
    refused(|asked, _| asked.tensors[0].element = element::F32, "must be bfloat16 or float16, not float32");
    refused(|asked, _| asked.tensors[4].element = 9, "must be float32, not of type 9");
    refused(|asked, _| asked.tensors[2].address += 2, "`v` begins at 0x");
    refused(|asked, _| asked.tensors[3].address = asked.tensors[1].address, "`out` overlaps `k`");
    refused(|asked, _| asked.tensors[0].elements = 63, "Q has 63 elements");
    refused(|asked, _| asked.integers[0] = -1, "batch is -1");
    refused(|asked, _| asked.integers[4] = 0, "there are no keys");
    refused(|asked, _| asked.integers[5] = 80, "not 80");
    refused(|asked, _| asked.integers[6] = 2, "no layout 2");
    refused(|asked, _| asked.integers[7] = 3, "no mask 3");
    refused(|asked, _| asked.integers[10] = 4, "no form 4");
    refused(|asked, _| asked.integers[10] = 2, "the Hopper form does not run on");
    refused(|asked, _| asked.numbers[0] = f64::NAN, "scale must be positive");
    refused(|asked, needed| asked.workspace = Some((256, needed - 1)), "the workspace has");
    refused(|asked, needed| asked.workspace = Some((128, needed)), "at a multiple of 256");
    assert!(decode.output.to_vec().unwrap().iter().all(|x| x.is_nan()));
}

#[test]
fn other_versions_and_devices_are_refused() {
    let device = Device::open(0).unwrap();
    let decode = Decode::new(&device, 3);
    assert_eq!(apex_kernels_version(), VERSION);
    let asked = decode.asked();
    let (code, said) = run(asked.operation, &Call { version: VERSION + 1, ..asked.call() });
    assert_eq!((code, said.contains("install both from one release")), (status::INVALID, true), "{said}");
    let (code, said) = run(asked.operation, &Call { device: -1, ..asked.call() });
    assert_eq!((code, said.contains("device -1")), (status::INVALID, true), "{said}");
    let (code, said) = run(asked.operation, &Call { device: 99, ..asked.call() });
    assert_eq!((code, said.contains("99")), (status::DEVICE, true), "{said}");
}

#[test]
fn a_message_is_cut_where_its_room_ends() {
    let mut room = [7u8; 8];
    for size in [0, 1, 5] {
        // SAFETY: the operation is looked up first, with a version that fits; the message has room.
        let code = unsafe {
            let call =
                Asked { operation: "", tensors: vec![], integers: vec![], numbers: vec![], workspace: None }
                    .call();
            apex_kernels_run(c"none".as_ptr(), &call, room.as_mut_ptr().cast(), size)
        };
        assert_eq!(code, status::INVALID);
    }
    assert_eq!(&room, b"ther\0\x07\x07\x07");
}

#[test]
fn the_threads_context_and_capture_mode_stay() {
    let device = Device::open(0).unwrap();
    let decode = Decode::new(&device, 7);
    std::thread::spawn(move || {
        let state = || {
            let (mut context, mut mode) =
                (null_mut(), sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL);
            // SAFETY: both are valid for writes; the mode is exchanged back.
            unsafe {
                sys::cuCtxGetCurrent(&mut context).result().unwrap();
                sys::cuThreadExchangeStreamCaptureMode(&mut mode).result().unwrap();
                let mut same = mode;
                sys::cuThreadExchangeStreamCaptureMode(&mut same).result().unwrap();
            }
            (context, mode)
        };
        let before = state();
        assert!(before.0.is_null());
        assert_eq!(decode.asked().run().0, 1);
        assert_eq!(state(), before);
    })
    .join()
    .unwrap();
}
