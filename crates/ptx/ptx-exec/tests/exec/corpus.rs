//! Compares the corpus of the `ptx` crate, CUDA C++ compiled by NVRTC, as executed with the same
//! computations in Rust.

use std::path::PathBuf;

use cuda_launch::LaunchConfig;
use ptx_exec::{LaunchParams, Linked};

use apex_counts::Defect;

use crate::analysis::checked;
use crate::device::{Device, pack};
use apex_random::Random;

/// The PTX files made from `program`, for every target.
fn files(program: &str) -> Vec<(PathBuf, String)> {
    let mut files = test_manifest::ptx_corpus();
    files.retain(|(path, _)| path.file_name().unwrap().to_string_lossy().starts_with(&format!("{program}.")));
    assert!(!files.is_empty(), "no PTX for {program}");
    files
}

/// Kernels of the corpus that have a defect: this one reads shared memory that it never writes.
const DEFECTIVE: [(&str, &str); 1] = [("spaces", "uninitialized-read")];

/// An argument of a kernel.
enum Argument {
    Bytes(Vec<u8>),
    Buffer(u64),
}

struct Run<'a> {
    device: &'a Device,
    linked: &'a Linked,
    name: &'a str,
    grid: u32,
    block: [u32; 3],
    shared: u32,
}

impl Run<'_> {
    fn call(&self, arguments: &[Argument]) {
        let kernel =
            self.linked.program().kernel(self.name).unwrap_or_else(|| panic!("no kernel {}", self.name));
        let values: Vec<Vec<u8>> = arguments
            .iter()
            .map(|argument| match argument {
                Argument::Bytes(bytes) => bytes.clone(),
                Argument::Buffer(address) => address.to_le_bytes().to_vec(),
            })
            .collect();
        let params = LaunchParams {
            config: LaunchConfig::new([self.grid, 1, 1], self.block).with_dynamic_shared_bytes(self.shared),
            cooperative: false,
            stack: 4096,
            workers: 0,
            params: &pack(self.linked, kernel, &values),
        };
        self.device.run(self.linked, kernel, &params).unwrap_or_else(|fault| panic!("{fault}"));
    }
}

fn bytes<T: Copy, const N: usize>(values: &[T], to_bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|value| to_bytes(*value)).collect()
}

fn ints(device: &Device, address: u64, count: usize) -> Vec<i32> {
    let bytes = device.download(address, 4 * count);
    bytes.chunks_exact(4).map(|word| i32::from_le_bytes(word.try_into().unwrap())).collect()
}

fn floats(device: &Device, address: u64, count: usize) -> Vec<f32> {
    ints(device, address, count).into_iter().map(|bits| f32::from_bits(bits as u32)).collect()
}

fn int(value: i32) -> Argument {
    Argument::Bytes(value.to_le_bytes().into())
}

fn upload_ints(device: &Device, values: &[i32]) -> u64 {
    device.upload(&bytes(values, i32::to_le_bytes))
}

/// Runs `test` for every target of `program` that has the kernel.
fn for_each(program: &str, kernel: &str, test: impl Fn(&Device, &Linked)) {
    let mut runs = 0;
    for (path, source) in files(program) {
        // Watching changes nothing, and finds nothing to complain about. What is known of registers
        // and addresses is true.
        let (checks, compared) = checked(&source);
        assert!(compared.0 > 0);
        for (source, watched) in [(&source, false), (&source, true), (&checks, false)] {
            let device = Device::watched(watched);
            let linked = device.load(source);
            if linked.program().kernel(kernel).is_some() {
                println!("{}, watched: {watched}", path.display());
                test(&device, &linked);
                let found: Vec<Defect> =
                    device.defects.into_inner().unwrap().into_iter().map(|group| group.defect).collect();
                let unknown = |defect: &&Defect| !DEFECTIVE.contains(&(&*defect.kernel, &*defect.kind));
                assert_eq!(found.iter().find(unknown), None);
                runs += 1;
            }
        }
    }
    assert!(runs > 0, "no target has {kernel}");
}

#[test]
fn integers() {
    let n = 300;
    let mut random = Random::new(99);
    let a: Vec<i32> = (0..n).map(|i| if i % 3 == 0 { i - 50 } else { random.bits() as i32 }).collect();
    let b: Vec<i32> = (0..n).map(|i| if i % 4 == 0 { i } else { random.bits() as i32 }).collect();
    let ffs = |x: u64| if x == 0 { 0 } else { x.trailing_zeros() as i32 + 1 };
    let expect = |i: usize| -> [i64; 8] {
        let (x, y) = (a[i], b[i] as u32);
        let wide = i64::from(x).wrapping_mul(i64::from(y as i32)).wrapping_add(i as i64);
        let uwide = u64::from(y).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let odd_y = (y | 1) as i32;
        let mulhi = |a: i32, b: i32| (i64::from(a) * i64::from(b) >> 32) as i32;
        let umulhi = |a: u32, b: u32| (u64::from(a) * u64::from(b) >> 32) as u32;
        let low = |v: i32| i64::from(v << 8 >> 8);
        let ulow = |v: u32| u64::from(v & 0xff_ffff);
        let permute = |selector: u32| {
            let all = u64::from(y) << 32 | u64::from(x as u32);
            (0..4).fold(0u32, |result, k| {
                result | ((all >> (8 * (selector >> (4 * k) & 7))) as u32 & 255) << (8 * k)
            })
        };
        let selector = (0x5410 ^ (i as u32 & 0x7777)) & 0x7777;
        let both = u64::from(y) << 32 | u64::from(x as u32);
        let last = permute(selector)
            .wrapping_add((both << (i & 31) >> 32) as u32)
            .wrapping_add((both >> i.min(32)) as u32)
            .wrapping_add(x.max(y as i32) as u32)
            .wrapping_add(x.min(y as i32) as u32)
            .wrapping_add((x as u32).max(y))
            .wrapping_add((x as u32).min(y))
            .wrapping_add(x.wrapping_abs() as u32)
            .wrapping_add(((i64::from(x) + i64::from(y as i32)) >> 1) as u32)
            .wrapping_add(((i64::from(x) + i64::from(y as i32) + 1) >> 1) as u32)
            .wrapping_add((x as u32) << (y & 31))
            .wrapping_add((x >> (y & 31)) as u32)
            .wrapping_add(y >> (x as u32 & 31));
        [
            i64::from(
                (x / 7).wrapping_add(x % 13).wrapping_add((y / 10) as i32).wrapping_add((y % 1000) as i32),
            ),
            i64::from(x.wrapping_div(odd_y).wrapping_add((y % (x | 1) as u32) as i32)),
            (wide / i64::from(x | 1)).wrapping_add(wide % 1_000_003),
            // The sum is unsigned: one of its terms is.
            i64::from(
                (y.count_ones() + x.leading_zeros() * 64)
                    .wrapping_add((ffs(x as u32 as u64) * 4096) as u32)
                    .wrapping_add(y.reverse_bits() >> 7),
            ),
            (u64::from(uwide.count_ones()) + u64::from(wide.leading_zeros()) + ffs(wide as u64) as u64)
                .wrapping_add(uwide.reverse_bits() >> 11) as i64,
            i64::from(
                (mulhi(x, y as i32) as u32)
                    .wrapping_add(umulhi(x as u32, y))
                    .wrapping_add((low(x) * low(y as i32)) as u32)
                    .wrapping_add((ulow(x as u32) * ulow(y)) as u32),
            ),
            ((u128::from(uwide) * u128::from(wide as u64) >> 64) as u64)
                .wrapping_add((i128::from(wide) * i128::from(uwide as i64) >> 64) as u64)
                .wrapping_add(u64::from(x.abs_diff(y as i32).wrapping_add(5)))
                .wrapping_add(u64::from((x as u32).abs_diff(y).wrapping_add(9))) as i64,
            i64::from(last),
        ]
    };
    for_each("arithmetic", "integers", |device, linked| {
        let (da, db) = (upload_ints(device, &a), upload_ints(device, &b));
        let out = device.allocate(n as u64 * 64, true);
        Run { device, linked, name: "integers", grid: 3, block: [128, 1, 1], shared: 0 }.call(&[
            Argument::Buffer(da),
            Argument::Buffer(db),
            Argument::Buffer(out),
            int(n),
        ]);
        let found = device.download(out, n as usize * 64);
        for i in 0..n as usize {
            let row: Vec<i64> = found[i * 64..][..64]
                .chunks_exact(8)
                .map(|v| i64::from_le_bytes(v.try_into().unwrap()))
                .collect();
            assert_eq!(row, expect(i), "element {i}: {} {}", a[i], b[i] as u32);
        }
    });
}

/// The library functions are long sequences of arithmetic: they come out right only if all of it
/// does.
#[test]
fn library_of_singles() {
    let n = 500;
    let mut random = Random::new(7);
    let input: Vec<f32> = (0..n).map(|_| (random.bits() as i32 as f64 / 2f64.powi(28)) as f32).collect();
    // One function after the other, to tell which one is wrong.
    for_each("library", "unary", |device, linked| {
        let buffer = device.upload(&bytes(&input, f32::to_le_bytes));
        let out = device.allocate(n as u64 * 4, true);
        let functions: [(&str, fn(f64) -> f64); 20] = [
            ("sin", f64::sin),
            ("cos", f64::cos),
            ("tan", f64::tan),
            ("asin", |x| (x / 8.0).asin()),
            ("acos", |x| (x / 8.0).acos()),
            ("atan", f64::atan),
            ("sinh", f64::sinh),
            ("cosh", f64::cosh),
            ("tanh", f64::tanh),
            ("exp", f64::exp),
            ("exp2", f64::exp2),
            ("expm1", f64::exp_m1),
            ("log", |x| x.abs().ln()),
            ("log2", |x| x.abs().log2()),
            ("log10", |x| x.abs().log10()),
            ("log1p", |x| x.abs().ln_1p()),
            ("cbrt", f64::cbrt),
            ("sqrt", |x| x.abs().sqrt()),
            ("far sin", |x| ((x as f32 * 1e6) as f64).sin()),
            ("pow", |x| x.abs().powf(1.7f32.into())),
        ];
        for (which, (name, exact)) in functions.iter().enumerate() {
            Run { device, linked, name: "unary", grid: 2, block: [256, 1, 1], shared: 0 }.call(&[
                Argument::Buffer(buffer),
                Argument::Buffer(out),
                int(n),
                int(which as i32),
            ]);
            for (x, found) in input.iter().zip(floats(device, out, n as usize)) {
                let expected = exact(f64::from(*x));
                let error = (f64::from(found) - expected).abs();
                assert!(error <= expected.abs() * 4e-7 + 1e-7, "{name}({x}) = {found}, not {expected}");
            }
        }
    });
}

#[test]
fn wide_integers_and_carries() {
    let mut random = Random::new(3);
    let a: Vec<u64> = (0..35).map(|_| random.bits()).collect();
    for_each("arithmetic", "carries", |device, linked| {
        let (from, out) = (device.upload(&bytes(&a, u64::to_le_bytes)), device.allocate(32 * 48, true));
        Run { device, linked, name: "carries", grid: 1, block: [32, 1, 1], shared: 0 }
            .call(&[Argument::Buffer(from), Argument::Buffer(out)]);
        let found = device.download(out, 32 * 48);
        for i in 0..32 {
            let at = |k: usize| u64::from_le_bytes(found[i * 48 + k * 8..][..8].try_into().unwrap());
            let both = |k: usize| u128::from(at(k)) | u128::from(at(k + 1)) << 64;
            let (x, y) = (
                u128::from(a[i]) << 64 | u128::from(a[i + 1]),
                u128::from(a[i + 2]) << 64 | u128::from(a[i + 3]),
            );
            assert_eq!(both(0), x.wrapping_add(y));
            assert_eq!(both(2), x.wrapping_mul(y));
            assert_eq!(both(4), x.wrapping_sub(y));
        }
    });
}

#[test]
fn functions() {
    for_each("calls", "recursion", |device, linked| {
        let run = |name, grid, arguments: &[Argument]| {
            Run { device, linked, name, grid, block: [64, 1, 1], shared: 0 }.call(arguments);
        };
        let out = device.allocate(64 * 4, true);
        run("recursion", 1, &[Argument::Buffer(out)]);
        let mut fibonacci = vec![0, 1];
        (2..12).for_each(|i| fibonacci.push(fibonacci[i - 1] + fibonacci[i - 2]));
        let expected: Vec<i32> = (0..64).map(|i| fibonacci[i % 12]).collect();
        assert_eq!(ints(device, out, 64), expected);

        run("pointers", 1, &[Argument::Buffer(out)]);
        assert_eq!(
            ints(device, out, 64),
            (0..64).map(|i| if i % 2 == 0 { i + 3 } else { i * 3 }).collect::<Vec<_>>()
        );

        run("virtuals", 1, &[Argument::Buffer(out)]);
        for (i, area) in floats(device, out, 64).into_iter().enumerate() {
            let x = i as f32;
            assert_eq!(area, if i % 2 == 1 { x * x } else { 3.14159f32 * x * x });
        }

        let data: Vec<i32> = (0..64).map(|i| i * 31 - 200).collect();
        for kind in 0..9 {
            let buffer = upload_ints(device, &data);
            run("dispatch", 1, &[Argument::Buffer(buffer), int(kind)]);
            let expected: Vec<i32> = (0..64)
                .map(|i| {
                    let x = data[i as usize];
                    match (kind + i) % 9 {
                        0 => x + 1,
                        1 => x * 3,
                        2 => x ^ 5,
                        3 => x - 7,
                        4 => x / 9,
                        5 => x << 2,
                        6 => !x,
                        7 => -x,
                        _ => 0,
                    }
                })
                .collect();
            assert_eq!(ints(device, buffer, 64), expected);
        }

        let pointers = device.allocate(64 * 8, true);
        run("heap", 1, &[Argument::Buffer(pointers), int(9)]);
        let addresses = device.download(pointers, 64 * 8);
        for (thread, address) in addresses.chunks_exact(8).enumerate() {
            let address = u64::from_le_bytes(address.try_into().unwrap());
            assert_eq!(ints(device, address, 9), (0..9).map(|k| k + thread as i32).collect::<Vec<_>>());
        }

        run("prints", 1, &[int(5)]);
        let printed = String::from_utf8(device.printed.lock().unwrap().split_off(0)).unwrap();
        assert_eq!(printed.lines().count(), 64);
        assert_eq!(printed.lines().nth(3), Some("thread 3 of 64: 2.500000 text c 1099511627776 (nil)"));
    });
}

#[test]
fn aggregates() {
    for_each("calls", "aggregates", |device, linked| {
        // int values[7], double weight.
        let mut contents = Vec::new();
        for i in 0..8 {
            (0..7).for_each(|k: i32| contents.extend((i * 10 + k).to_le_bytes()));
            contents.extend([0; 4]);
            contents.extend(f64::from(i).to_le_bytes());
        }
        let data = device.upload(&contents);
        Run { device, linked, name: "aggregates", grid: 1, block: [8, 1, 1], shared: 0 }
            .call(&[Argument::Buffer(data)]);
        for i in 0..8 {
            let values = ints(device, data + i as u64 * 40, 7);
            assert_eq!(values, (0..7).map(|k| (i * 10 + k) * 3 * i).collect::<Vec<_>>());
            let weight = device.download(data + i as u64 * 40 + 32, 8);
            assert_eq!(f64::from_le_bytes(weight.try_into().unwrap()), f64::from(i) + 97.0 + 98.0);
        }
    });
}

#[test]
fn state_spaces() {
    let n = 64;
    let input: Vec<f32> = (0..n).map(|i| i as f32 * 0.5).collect();
    for_each("memory", "spaces", |device, linked| {
        let (from, out) = (device.upload(&bytes(&input, f32::to_le_bytes)), device.allocate(n * 4, true));
        Run { device, linked, name: "spaces", grid: 1, block: [64, 1, 1], shared: 64 * 4 }.call(&[
            Argument::Buffer(out),
            Argument::Buffer(from),
            int(n as i32),
        ]);
        let n = n as usize;
        let table = [1.0f32, 2.5, -3.0, 4.0];
        let local = |i: usize| -> Vec<f32> {
            let mut local: Vec<f32> = (0..16).map(|k| input[(i + k) % n]).collect();
            local[n & 15] += table.get(i & 15).copied().unwrap_or(0.0);
            local
        };
        let names = ["zero", "one", "two"];
        let small = [[1, 2, 0, 0], [3, 4, 5, 0], [0, 0, 0, 0]];
        for (i, found) in floats(device, out, n).into_iter().enumerate() {
            // Dynamic shared memory starts as zeros; threads write tile[i / 8][i % 8].
            let (value, space) = if i & 1 == 1 {
                let writer = (i % 8) * 8 + i / 8;
                (local(writer)[(writer * 7) & 15], 1.0)
            } else {
                (local(i)[i & 15], 4.0)
            };
            let byte = f32::from(names[i % 3].as_bytes()[1]) + small[i % 3][i & 3] as f32;
            let expected = value + input[i] + 7.0 + byte + 3.0 + space;
            assert_eq!(found, expected, "thread {i}");
        }
    });
}

#[test]
fn structures_and_vectors() {
    for_each("memory", "vectors", |device, linked| {
        let a: Vec<f32> = (0..128).map(|i| i as f32).collect();
        let words: Vec<i32> = (0..64).map(|i| i * 3).collect();
        let small: Vec<u8> = (0..128).collect();
        let doubles: Vec<f64> = (0..64).map(f64::from).collect();
        let shorts: Vec<i16> = (0..128).map(|i| i * 7 - 99).collect();
        let buffers = [
            device.upload(&bytes(&a, f32::to_le_bytes)),
            device.allocate(512, true),
            upload_ints(device, &words),
            device.allocate(256, true),
            device.upload(&small),
            device.allocate(128, true),
            device.upload(&bytes(&doubles, f64::to_le_bytes)),
            device.allocate(512, true),
            device.upload(&bytes(&shorts, i16::to_le_bytes)),
            device.allocate(256, true),
        ];
        let arguments: Vec<Argument> = buffers.iter().map(|&buffer| Argument::Buffer(buffer)).collect();
        Run { device, linked, name: "vectors", grid: 1, block: [32, 1, 1], shared: 0 }.call(&arguments);
        let turned = floats(device, buffers[1], 128);
        assert!((0..128).all(|i| turned[i] == a[i / 4 * 4 + 3 - i % 4]));
        let swapped = ints(device, buffers[3], 64);
        assert!((0..64).all(|i| swapped[i] == words[i ^ 1]));
        let mixed = device.download(buffers[5], 128);
        assert!((0..128).all(|i| mixed[i] == small[i / 4 * 4 + [3, 0, 1, 2][i % 4]]));
        let halves = device.download(buffers[9], 256);
        assert!(
            (0..128)
                .all(|i| halves[2 * i..2 * i + 2] == shorts[i / 4 * 4 + [3, 2, 0, 1][i % 4]].to_le_bytes())
        );
    });
}

#[test]
fn warp_functions() {
    let mut random = Random::new(5);
    let input: Vec<i32> = (0..64).map(|_| (random.bits() % 1000) as i32 - 300).collect();
    for_each("warps", "shuffles", |device, linked| {
        let (from, out) = (upload_ints(device, &input), device.allocate(256, true));
        Run { device, linked, name: "shuffles", grid: 1, block: [64, 1, 1], shared: 0 }
            .call(&[Argument::Buffer(from), Argument::Buffer(out)]);
        for (thread, found) in ints(device, out, 64).into_iter().enumerate() {
            let (warp, lane) = (thread / 32 * 32, thread % 32);
            let x = |lane: usize| input[warp + lane];
            let mut s = x(3);
            s += x(if lane < 2 { lane } else { lane - 2 }) * 3;
            s += x(if lane % 8 + 5 < 8 { lane + 5 } else { lane }) * 5;
            s += x(lane ^ 7) * 7 + x(lane / 4 * 4 + (thread + 1) % 4);
            let ballot = (0..32).fold(0u32, |mask, lane| mask | (x(lane) as u32 & 1) << lane);
            s = s.wrapping_add(ballot as i32);
            s += i32::from((0..32).any(|lane| x(lane) > 5)) + 2 * i32::from((0..32).all(|lane| x(lane) > 5))
                - 1;
            s = s.wrapping_add(x(lane ^ 1));
            let next = i64::from(x(if lane < 31 { lane + 1 } else { lane })) << 20;
            assert_eq!(found, s.wrapping_add(next as i32), "thread {thread}");
        }
    });
    for_each("warps", "spin", |device, linked| {
        let counter = upload_ints(device, &[0]);
        Run { device, linked, name: "spin", grid: 4, block: [96, 1, 1], shared: 0 }
            .call(&[Argument::Buffer(counter)]);
        assert_eq!(ints(device, counter, 1), [384]);
    });
    for_each("warps", "reductions", |device, linked| {
        let (from, out) = (upload_ints(device, &input), device.allocate(128, true));
        Run { device, linked, name: "reductions", grid: 1, block: [32, 1, 1], shared: 0 }
            .call(&[Argument::Buffer(from), Argument::Buffer(out)]);
        let lanes = &input[..32];
        let fold = |f: fn(i32, i32) -> i32| lanes.iter().copied().reduce(f).unwrap();
        let umax = lanes.iter().map(|&x| x as u32).max().unwrap() as i32;
        let sum = fold(i32::wrapping_add)
            .wrapping_add(fold(i32::min))
            .wrapping_add(umax)
            .wrapping_add(fold(|a, b| a & b))
            .wrapping_add(fold(|a, b| a | b))
            .wrapping_add(fold(|a, b| a ^ b));
        assert_eq!(ints(device, out, 32), [sum; 32]);
    });
    for_each("warps", "groups", |device, linked| {
        let (data, out) = (upload_ints(device, &input), upload_ints(device, &[0]));
        Run { device, linked, name: "groups", grid: 1, block: [64, 1, 1], shared: 0 }
            .call(&[Argument::Buffer(data), Argument::Buffer(out)]);
        // Each of the 8 tiles adds its sum and the size of the group of threads that are together
        // there.
        assert_eq!(ints(device, out, 1), [input.iter().sum::<i32>() + 8 * 32]);
    });
    for_each("warps", "barriers", |device, linked| {
        let data: Vec<i32> = (0..256).map(|i| i * 2 + i % 3).collect();
        let (from, out) = (upload_ints(device, &data), device.allocate(1024, true));
        Run { device, linked, name: "barriers", grid: 1, block: [256, 1, 1], shared: 0 }
            .call(&[Argument::Buffer(from), Argument::Buffer(out)]);
        let odd = data.iter().filter(|&&x| x & 1 == 1).count() as i32;
        let and = i32::from(data.iter().all(|&x| x != 0));
        for (i, found) in ints(device, out, 256).into_iter().enumerate() {
            assert_eq!(found, data[255 - i] + odd + and + 1);
        }
    });
}

#[test]
fn tiled_product_and_pipelines() {
    let n = 64;
    let mut random = Random::new(21);
    let mut matrix = || -> Vec<f32> { (0..n * n).map(|_| (random.bits() % 17) as f32 - 8.0).collect() };
    let (a, b) = (matrix(), matrix());
    for_each("linear", "tiled", |device, linked| {
        let upload = |values: &[f32]| device.upload(&bytes(values, f32::to_le_bytes));
        let (da, db, dc) = (upload(&a), upload(&b), device.allocate((n * n * 4) as u64, true));
        let kernel = linked.program().kernel("tiled").unwrap();
        let values = [da, db, dc].map(|address| address.to_le_bytes().to_vec());
        let mut values = values.to_vec();
        values.push((n as i32).to_le_bytes().to_vec());
        let side = (n / 16) as u32;
        let params = LaunchParams {
            config: LaunchConfig::new([side, side, 1], [16, 16, 1]),
            cooperative: false,
            stack: 0,
            workers: 0,
            params: &pack(linked, kernel, &values),
        };
        let stats = device.run(linked, kernel, &params).unwrap();
        assert_eq!(stats.divergent_branches, 0);
        for (index, found) in floats(device, dc, n * n).into_iter().enumerate() {
            let (row, column) = (index / n, index % n);
            // Whole numbers: every order of summation gives the same.
            assert_eq!(found, (0..n).map(|k| a[row * n + k] * b[k * n + column]).sum::<f32>());
        }
    });
    for_each("linear", "pipelined", |device, linked| {
        let input: Vec<f32> = (0..64 * 4 * 5).map(|i| i as f32).collect();
        let (from, out) =
            (device.upload(&bytes(&input, f32::to_le_bytes)), device.allocate(64 * 16 * 5, true));
        Run { device, linked, name: "pipelined", grid: 1, block: [64, 1, 1], shared: 0 }.call(&[
            Argument::Buffer(from),
            Argument::Buffer(out),
            int(5),
        ]);
        let found = floats(device, out, input.len());
        for (index, value) in found.into_iter().enumerate() {
            let (round, thread, part) = (index / 256, index / 4 % 64, index % 4);
            assert_eq!(value, input[round * 256 + (63 - thread) * 4 + part]);
        }
    });
}
