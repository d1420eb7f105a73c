//! Vectors that one block stores and another one loads are never halves of two: GPUs move up to 16
//! aligned bytes at once, and the scans of CUB rely on it.

use crate::device::{Device, pack};
use cuda_launch::LaunchConfig;
use ptx_exec::LaunchParams;

/// Vectors that the first block stores, one after the other.
const STORED: u32 = 200_000;

/// Block 0 stores vectors of equal elements, 1 to `STORED`; block 1 loads them until it has seen
/// the last, and counts those whose elements differ. `modifiers` are what loads and stores are
/// qualified with.
fn kernel(load: &str, store: &str, vector: &str, ty: &str, bits: u32) -> String {
    let count = vector[1..].parse::<usize>().unwrap();
    let registers = |prefix: &str| {
        let names: Vec<String> = (0..count).map(|element| format!("%{prefix}{element}")).collect();
        names.join(", ")
    };
    let same = "%value, ".repeat(count);
    let compare: String = (1..count)
        .map(|element| format!("setp.ne.u{bits} %p, %v0, %v{element}; @%p add.u32 %torn, %torn, 1; "))
        .collect();
    format!(
        ".version 7.8\n.target sm_70\n.address_size 64\n
        .visible .entry k(.param .u64 cell, .param .u64 out, .param .u32 stored) {{
            .reg .pred %p; .reg .b32 %block, %stored, %i, %torn; .reg .b64 %cell, %out; .reg .b{bits} %v<4>, %value, %last;
            ld.param.u64 %cell, [cell]; ld.param.u64 %out, [out]; ld.param.u32 %stored, [stored];
            cvt.u{bits}.u32 %last, %stored;
            mov.u32 %block, %ctaid.x;
            mov.u32 %torn, 0;
            mov.u32 %i, 0;
            setp.ne.u32 %p, %block, 0;
            @%p bra LOAD;
        STORE:
            add.u32 %i, %i, 1;
            cvt.u{bits}.u32 %value, %i;
            st{store}.global.{vector}.{ty} [%cell], {{{}}};
            setp.lt.u32 %p, %i, %stored;
            @%p bra STORE;
            ret;
        LOAD:
            ld{load}.global.{vector}.{ty} {{{}}}, [%cell];
            {compare}setp.ne.u{bits} %p, %v0, %last;
            @%p bra LOAD;
            st.global.u32 [%out], %torn;
            ret;
        }}",
        same.trim_end_matches(", "),
        registers("v"),
    )
}

fn torn(load: &str, store: &str, vector: &str, ty: &str, bits: u32) -> u32 {
    let device = Device::default();
    let linked = device.load(&kernel(load, store, vector, ty, bits));
    let kernel = linked.program().kernel("k").unwrap();
    let (cell, out) = (device.upload(&[0; 16]), device.upload(&[0xff; 4]));
    let values = [cell.to_le_bytes().to_vec(), out.to_le_bytes().to_vec(), STORED.to_le_bytes().to_vec()];
    let params = pack(&linked, kernel, &values);
    let launch = LaunchParams {
        config: LaunchConfig::new(2, 1),
        cooperative: true,
        stack: 1024,
        workers: 2,
        params: &params,
    };
    device.run(&linked, kernel, &launch).unwrap();
    u32::from_le_bytes(device.download(out, 4).try_into().unwrap())
}

#[test]
fn strong_vectors_of_up_to_16_bytes_are_not_torn() {
    for (vector, ty, bits) in [("v2", "u64", 64), ("v4", "u32", 32), ("v2", "u32", 32), ("v4", "u16", 16)] {
        let torn = torn(".relaxed.gpu", ".relaxed.gpu", vector, ty, bits);
        assert_eq!(torn, 0, "{vector}.{ty}");
    }
    assert_eq!(torn(".volatile", ".volatile", "v2", "u64", 64), 0);
}
