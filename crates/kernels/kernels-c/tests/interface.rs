//! The C interface as a C program calls it, on the CPU device: what it computes, what it refuses,
//! what it leaves as it was.

use std::ffi::{CStr, CString};
use std::ptr::null_mut;

use apex_gpu::{Buffer, Device};
use apex_kernels::moe::{self, Moe, MoeForm};
use apex_kernels::{Attention, Mask, Options, Saved, Sequences, Shape};
use apex_kernels_c::{Header, Tensor, VERSION, apex_kernels_message, apex_kernels_plan, apex_kernels_run};
use apex_kernels_c::{apex_kernels_version, element, status};
use cudarc::driver::sys;
use half::f16;

/// An operation, and what it is called with.
#[derive(Clone)]
struct Asked {
    version: u32,
    device: i32,
    operation: &'static str,
    tensors: Vec<Tensor>,
    integers: Vec<i64>,
    numbers: Vec<f64>,
    workspace: Option<(u64, u64)>,
}

impl Asked {
    fn new(operation: &'static str) -> Asked {
        let (tensors, integers, numbers) = (vec![], vec![], vec![]);
        Asked { version: VERSION, device: 0, operation, tensors, integers, numbers, workspace: None }
    }

    /// The call as a caller without this crate's structures writes it, in words.
    fn words(&self) -> Vec<u64> {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let [tensors, integers, numbers] =
            [self.tensors.len(), self.integers.len(), self.numbers.len()].map(|count| count as u32);
        let (workspace, bytes) = self.workspace.unwrap_or_default();
        let mut words = vec![pair(self.version, self.device as u32), 0, workspace, bytes];
        words.extend([pair(tensors, integers), pair(numbers, 0)]);
        assert_eq!(8 * words.len(), size_of::<Header>());
        let of_tensor = |tensor: &Tensor| [tensor.address, tensor.elements, pair(tensor.element, 0)];
        words.extend(self.tensors.iter().flat_map(of_tensor));
        words.extend(self.integers.iter().map(|&integer| integer as u64));
        words.extend(self.numbers.iter().map(|number| number.to_bits()));
        words
    }

    /// Runs the call; returns its result and the message.
    fn run(&self) -> (i32, String) {
        let name = CString::new(self.operation).unwrap();
        // SAFETY: tensors are buffers of the device, and the stream is the default one.
        let code = unsafe { apex_kernels_run(name.as_ptr(), self.words().as_ptr().cast()) };
        (code, if code < 0 { message() } else { String::new() })
    }

    /// Bytes of the workspace, and the form.
    fn plan(&self) -> (u64, i32) {
        let (name, mut bytes) = (CString::new(self.operation).unwrap(), 0);
        // SAFETY: the words live as long as the call.
        let code = unsafe { apex_kernels_plan(name.as_ptr(), self.words().as_ptr().cast(), &mut bytes) };
        assert!(code >= 0, "{}", message());
        (bytes, code)
    }
}

/// Returns the last error in this thread.
fn message() -> String {
    let mut message = [1u8; 400];
    // SAFETY: it has as much room.
    unsafe { apex_kernels_message(message.as_mut_ptr().cast(), message.len()) };
    CStr::from_bytes_until_nul(&message).unwrap().to_string_lossy().into_owned()
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
        Asked { tensors, integers, numbers: vec![0.125], ..Asked::new("attention_forward") }
    }
}

#[test]
fn a_call_computes_with_and_without_a_workspace_and_says_the_form() {
    let device = Device::open(0).unwrap();
    for (keys, form) in [(5, 1), (2000, 3)] {
        let decode = Decode::new(&device, keys);
        let (needed, planned) = decode.asked().plan();
        assert_eq!(planned, form);
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
    let (needed, _) = decode.asked().plan();
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
fn no_rows_are_nothing_to_do() {
    let none = Tensor { address: 0, elements: 0, element: element::F16, reserved: 0 };
    let asked = Asked { tensors: vec![none; 2], integers: vec![0, 64], ..Asked::new("softmax") };
    assert_eq!(asked.run().0, status::DONE);
    // The gradient of a weight is the sum of nothing.
    let device = Device::open(0).unwrap();
    let [weight, gradient] = [1.0, f32::NAN].map(|x| device.upload(&[f16::from_f32(x); 64]).unwrap());
    device.synchronize().unwrap();
    let tensors = vec![none, tensor(&weight), none, none, tensor(&gradient)];
    let numbers = vec![1e-6];
    let asked = Asked { tensors, integers: vec![0, 64], numbers, ..Asked::new("rms_norm_gradient") };
    let (code, said) = asked.run();
    assert_eq!(code, status::DONE, "{said}");
    device.synchronize().unwrap(); // it was written in the default stream
    assert_eq!(gradient.to_vec().unwrap(), [f16::ZERO; 64]);
}

/// Rows that are all alike, whose norms are their signs: the gradient of the weight is the sum of
/// the rows' signs, and that of `x` is 0 but for rounding.
#[test]
fn gradients_of_a_norm_use_the_workspace() {
    let device = Device::open(0).unwrap();
    let (rows, length) = (300, 64);
    let signs: Vec<f16> = (0..length).map(|place| f16::from_f32([1.0, -1.0][place % 2])).collect();
    let x = device.upload(&signs.repeat(rows)).unwrap();
    let y_gradient = device.upload(&vec![f16::ONE; rows * length]).unwrap();
    let weight = device.upload(&signs).unwrap();
    let nan = |len| device.upload(&vec![f16::NAN; len]).unwrap();
    let (x_gradient, weight_gradient) = (nan(rows * length), nan(length));
    let tensors = [&x, &weight, &y_gradient, &x_gradient, &weight_gradient].map(tensor).to_vec();
    let (integers, numbers) = (vec![rows as i64, length as i64], vec![0.0]);
    let asked = Asked { tensors, integers, numbers, ..Asked::new("rms_norm_gradient") };
    let (needed, _) = asked.plan();
    assert!(needed > 0, "partial sums lie in the workspace");
    let memory = device.upload(&vec![f32::NAN; needed as usize / 4]).unwrap();
    for workspace in [None, Some((memory.address(), needed))] {
        device.synchronize().unwrap();
        let (code, said) = Asked { workspace, ..asked.clone() }.run();
        assert_eq!(code, status::DONE, "{said}");
        device.synchronize().unwrap();
        let sums: Vec<f32> = weight_gradient.to_vec().unwrap().iter().map(|x| x.to_f32()).collect();
        let expected: Vec<f32> = signs.iter().map(|sign| rows as f32 * sign.to_f32()).collect();
        assert_eq!(sums, expected);
        assert!(x_gradient.to_vec().unwrap().iter().all(|x| x.to_f32().abs() < 1e-3));
    }
    let (code, said) = Asked { workspace: Some((256, needed - 1)), ..asked }.run();
    assert_eq!((code, said.contains("the workspace has")), (status::INVALID, true), "{said}");
}

fn whole(buffer: &Buffer<u32>) -> Tensor {
    Tensor { address: buffer.address(), elements: buffer.len() as u64, element: element::I32, reserved: 0 }
}

/// Numbers between -1 and 1, no two alike next to each other.
fn mixed(device: &Device, len: usize) -> Buffer<f16> {
    let values: Vec<f16> = (0..len).map(|place| f16::from_f32((place as f32 * 0.7).sin())).collect();
    device.upload(&values).unwrap()
}

/// Runs a call with and without a workspace that holds NaN, and `check`s after each.
fn run_twice(device: &Device, asked: &Asked, form: i32, check: impl Fn()) {
    let (needed, planned) = asked.plan();
    assert_eq!(planned, form);
    let memory = device.upload(&vec![f32::NAN; needed as usize / 4]).unwrap();
    for workspace in [None, Some((memory.address(), needed))] {
        device.synchronize().unwrap();
        let (code, said) = Asked { workspace, ..asked.clone() }.run();
        assert_eq!(code, form, "{said}");
        device.synchronize().unwrap();
        check();
    }
}

/// The bits of the crate's own calls.
#[test]
fn experts_compute_what_they_compute_in_rust() {
    let device = Device::open(0).unwrap();
    let shape = moe::Shape { tokens: 70, experts: 3, top_k: 2, dim: 24, hidden: 10 };
    let options =
        moe::Options { form: Some(MoeForm::Portable), capacity: Some(50), ..moe::Options::default() };
    let tokens = mixed(&device, shape.token_elements());
    let (up, down) = (mixed(&device, shape.up_elements()), mixed(&device, shape.down_elements()));
    let given = mixed(&device, shape.token_elements());
    let logits: Vec<f32> = (0..shape.logits()).map(|place| (place as f32 * 1.3).cos()).collect();
    let logits = device.upload(&logits).unwrap();
    let inputs = moe::Inputs { tokens: &tokens, logits: &logits, bias: None, up: &up, down: &down };
    let moe = Moe::new(&device).unwrap();
    let (right, saved) = moe.forward_saving(&inputs, &shape, &options).unwrap();
    let forward = moe::Forward { inputs: &inputs, routing: &right.routing, saved: &saved };
    let (gradients, _) = moe.backward(&forward, &given, options.form).unwrap();

    let nan = |len| device.upload(&vec![f16::NAN; len]).unwrap();
    let poison = |len| device.upload(&vec![77u32; len]).unwrap();
    let (out, experts, loads) = (nan(tokens.len()), poison(shape.choices()), poison(3));
    let weights = device.upload(&vec![f32::NAN; shape.choices()]).unwrap();
    let (drops, plan) = (poison(2), poison(4 * (1 + 140 / 128 + 3) + 2 * 3 + 3 * 140));
    let projections = nan(2 * shape.choices() * shape.hidden);
    let none = |element| Tensor { address: 0, elements: 0, element, reserved: 0 };
    let read = [tensor(&tokens), tensor(&up), tensor(&down), sums(&logits)];
    let chosen = [whole(&experts), sums(&weights), whole(&loads), whole(&drops)];
    let kept = [whole(&plan), tensor(&projections)];
    let integers = vec![70, 3, 2, 24, 10, 0, 1, 50, 1];
    let asked = |name, parts: &[&[Tensor]]| Asked {
        tensors: parts.concat(),
        integers: integers.clone(),
        ..Asked::new(name)
    };
    let check = || {
        assert_eq!(out.to_vec().unwrap(), right.output.to_vec().unwrap());
        assert_eq!(experts.to_vec().unwrap(), right.routing.experts.to_vec().unwrap());
        assert_eq!(weights.to_vec().unwrap(), right.routing.weights.to_vec().unwrap());
        assert_eq!(loads.to_vec().unwrap(), right.routing.loads.to_vec().unwrap());
        assert_eq!(drops.to_vec().unwrap(), right.routing.drops.to_vec().unwrap().concat());
    };
    let (no_bias, nothing) = ([none(element::F32)], [none(element::I32), none(element::F16)]);
    for keeps in [&nothing, &kept] {
        let parts: [&[Tensor]; 5] = [&read, &no_bias, &[tensor(&out)], &chosen, keeps];
        run_twice(&device, &asked("experts_forward", &parts), 1, check);
    }

    let of_tokens = nan(tokens.len());
    let (of_up, of_down) = (nan(up.len()), nan(down.len()));
    let of_logits = device.upload(&vec![f32::NAN; logits.len()]).unwrap();
    let written = [tensor(&of_tokens), tensor(&of_up), tensor(&of_down), sums(&of_logits)];
    let parts: [&[Tensor]; 5] = [&read, &chosen, &kept, &[tensor(&given)], &written];
    let backward = asked("experts_backward", &parts);
    run_twice(&device, &backward, 1, || {
        assert_eq!(of_tokens.to_vec().unwrap(), gradients.tokens.to_vec().unwrap());
        assert_eq!(of_up.to_vec().unwrap(), gradients.up.to_vec().unwrap());
        assert_eq!(of_down.to_vec().unwrap(), gradients.down.to_vec().unwrap());
        assert_eq!(of_logits.to_vec().unwrap(), gradients.logits.to_vec().unwrap());
    });
    for (place, message) in [(8, "the plan has"), (9, "the projections have"), (11, "the tokens have")] {
        let mut wrong = backward.clone();
        wrong.tensors[place].elements -= 1;
        let (code, said) = wrong.run();
        assert_eq!((code, said.contains(message)), (status::INVALID, true), "{said}");
    }
}

#[test]
fn packed_sequences_compute_what_they_compute_in_rust() {
    let device = Device::open(0).unwrap();
    let heads = Shape { batch: 1, heads: 2, key_heads: 1, queries: 0, keys: 0, dim: 64 };
    let sequences = Sequences::new(&device, &heads, &[(5, 9), (0, 0), (3, 3)]).unwrap();
    let all = *sequences.all();
    let [q, given] = [all.query_elements(); 2].map(|len| mixed(&device, len));
    let [k, v] = [all.key_elements(); 2].map(|len| mixed(&device, len));
    let options =
        Options { mask: Mask::Causal, layout: apex_kernels::Layout::RowsFirst, ..Options::default() };
    let attention = Attention::new(&device).unwrap();
    let right = attention.forward_sequences(&q, &k, &v, &sequences, &options).unwrap();
    let saved = Saved { q: &q, k: &k, v: &v, output: &right.output, log_sum_exp: &right.log_sum_exp };
    let (gradients, _) = attention.backward_sequences(&saved, &given, &sequences, &options).unwrap();

    let starts = device.upload(&[0u32, 0, 5, 9, 5, 9, 8, 12]).unwrap();
    let nan = |len| device.upload(&vec![f16::NAN; len]).unwrap();
    let (out, log_sums) = (nan(q.len()), device.upload(&vec![f32::NAN; all.rows()]).unwrap());
    let (read, starts) = ([tensor(&q), tensor(&k), tensor(&v)], [whole(&starts)]);
    let asked = |name, parts: &[&[Tensor]]| Asked {
        tensors: parts.concat(),
        integers: vec![2, 1, 8, 12, 64, 1, 1, -1, -1, 0, 5, 9, 3],
        numbers: vec![0.125],
        ..Asked::new(name)
    };
    let written = [tensor(&out), sums(&log_sums)];
    run_twice(&device, &asked("attention_sequences_forward", &[&read, &starts, &written]), 1, || {
        assert_eq!(out.to_vec().unwrap(), right.output.to_vec().unwrap());
        assert_eq!(log_sums.to_vec().unwrap(), right.log_sum_exp.to_vec().unwrap());
    });
    let (of_q, of_k, of_v) = (nan(q.len()), nan(k.len()), nan(v.len()));
    let of = [tensor(&of_q), tensor(&of_k), tensor(&of_v)];
    let parts: [&[Tensor]; 5] = [&read, &written, &[tensor(&given)], &starts, &of];
    run_twice(&device, &asked("attention_sequences_backward", &parts), 1, || {
        assert_eq!(of_q.to_vec().unwrap(), gradients.q.to_vec().unwrap());
        assert_eq!(of_k.to_vec().unwrap(), gradients.k.to_vec().unwrap());
        assert_eq!(of_v.to_vec().unwrap(), gradients.v.to_vec().unwrap());
    });
}

#[test]
fn other_versions_and_devices_are_refused() {
    let device = Device::open(0).unwrap();
    let decode = Decode::new(&device, 3);
    assert_eq!(apex_kernels_version(), VERSION);
    let (code, said) = Asked { version: VERSION + 1, ..decode.asked() }.run();
    assert_eq!((code, said.contains("install both from one release")), (status::INVALID, true), "{said}");
    let (code, said) = Asked { device: -1, ..decode.asked() }.run();
    assert_eq!((code, said.contains("device -1")), (status::INVALID, true), "{said}");
    let (code, said) = Asked { device: 99, ..decode.asked() }.run();
    assert_eq!((code, said.contains("99")), (status::DEVICE, true), "{said}");
}

#[test]
fn a_message_is_cut_where_its_room_ends() {
    assert_eq!(Asked::new("none").run().0, status::INVALID);
    let mut room = [7u8; 8];
    for size in [0, 1, 5] {
        // SAFETY: there is as much room.
        unsafe { apex_kernels_message(room.as_mut_ptr().cast(), size) };
    }
    assert_eq!(&room, b"ther\0\x07\x07\x07");
}

#[test]
fn the_threads_context_and_capture_mode_stay() {
    let device = Device::open(0).unwrap();
    let decode = Decode::new(&device, 7);
    device.synchronize().unwrap();
    let decode = std::thread::spawn(move || {
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
        decode
    })
    .join()
    .unwrap();
    device.synchronize().unwrap(); // before the buffers are freed in the order of another stream
    drop(decode);
}
