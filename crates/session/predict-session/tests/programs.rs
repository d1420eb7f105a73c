//! The code of kernels in a session's images: PTX, tables of machine code, or nothing.

use apex_predict::Models;
use apex_predict_session::recorded;
use apex_profile::{
    Basis, Device, Distribution, Figure, GpuTime, Kernel, KernelArguments, KernelCode, KnownCode, Parameter,
    PointerTo, Profile, SessionCode,
};
use cuda_launch::{FunctionAttributes, LaunchConfig};
use fatbin::kept;
use std::borrow::Cow;
use std::sync::Arc;

const PTX: &[u8] = include_bytes!("../../../cuda/fatbin/tests/data/four_kernels.ptx");
const CUBIN: &[u8] = include_bytes!("../../../cuda/fatbin/tests/data/four_kernels_sm_90.cubin");
const DOUBLES: &[u8] = include_bytes!("../../../cuda/fatbin/tests/data/doubles_sm_90.cubin");

/// A kernel that calls a function of another module, and that module.
const CALLER: &[u8] = b".version 8.0
.target sm_80
.address_size 64
.extern .func elsewhere(.param .b64 to);
.visible .entry calling(.param .u64 to) {
    .reg .b64 %a;
    ld.param.u64 %a, [to];
    { .param .b64 given; st.param.b64 [given], %a; call elsewhere, (given); }
    ret;
}
";
const CALLED: &[u8] = b".version 8.0
.target sm_80
.address_size 64
.visible .func elsewhere(.param .b64 to) {
    .reg .b64 %a; .reg .f32 %f;
    ld.param.u64 %a, [to];
    ld.global.f32 %f, [%a];
    add.f32 %f, %f, %f;
    st.global.f32 [%a], %f;
    ret;
}
";

/// Each thread of a warp loads a word of another sector.
const STRIDED: &[u8] = b".version 8.0
.target sm_80
.address_size 64
.visible .entry strided(.param .u64 from) {
    .reg .b64 %a, %o; .reg .b32 %i, %v;
    ld.param.u64 %a, [from];
    cvta.to.global.u64 %a, %a;
    mov.u32 %i, %tid.x;
    mul.wide.u32 %o, %i, 256;
    add.s64 %a, %a, %o;
    ld.global.u32 %v, [%a];
    ret;
}
";

/// From nvcc 13.0, compressed as it does by default: PTX of the kernel `k`.
const FATBIN: &[u8] = include_bytes!("../../../cuda/fatbin/tests/data/three_ptx_one_cubin_zstd.fatbin");

/// The attributes of `tiled`, as a driver reports them.
const TILED: FunctionAttributes = FunctionAttributes {
    registers: 8,
    static_shared_bytes: 1024,
    local_bytes: 0,
    constant_bytes: 0,
    max_threads_per_block: 256,
    max_dynamic_shared_bytes: None,
    carveout: cuda_launch::Carveout::Default,
    barriers: 0,
    binary_version: 90,
    ptx_version: 80,
};

/// The kernel `symbol` of an image, which took this time.
fn kernel(symbol: &str, image: Option<&str>, gpu_ns: f64) -> Kernel {
    let gpu = GpuTime {
        each: Distribution { count: 1, mean_ns: gpu_ns, ..Distribution::default() },
        deviation_ns: None,
        basis: Basis::Busy,
        queued_samples: 0,
        busy_samples: 1,
        idle_samples: 0,
        correction_ns: 0.0,
        total_ns: Figure::sampled(gpu_ns, 1, None),
    };
    let code = KernelCode { image: image.map(str::to_owned), ..KernelCode::default() };
    Kernel {
        symbol: symbol.to_owned(),
        device: Some(0),
        launch: LaunchConfig::new(100, 256),
        attributes: Some(TILED),
        gpu: Some(gpu),
        code: Some(code),
        ..Kernel::default()
    }
}

/// Kernels of a session that kept code, on an H200, with their predictions.
fn predicted(kernels: Vec<Kernel>) -> Profile {
    let h200 = apex_predict::Device::h200();
    let device = Device {
        name: h200.name.clone(),
        compute_capability: Some((9, 0)),
        attributes: vec![
            (75, 9),
            (76, 0),
            (16, 132),
            (13, 1_980_000),
            (36, 3_201_000),
            (37, 6016),
            (38, 62_914_560),
        ],
        ..Device::default()
    };
    let packed = |bytes| Arc::from(kept::pack(&[Cow::Borrowed(bytes)]).unwrap());
    let linked = kept::pack(&[Cow::Borrowed(CUBIN), Cow::Borrowed(PTX)]).unwrap().into();
    let images = [
        ("text", packed(PTX)),
        ("binary", packed(CUBIN)),
        ("doubles", packed(DOUBLES)),
        ("damaged", packed(&CUBIN[..900])),
        ("linked", linked),
        ("fatbin", packed(&kept::select(FATBIN, 90))),
        ("two modules", kept::pack(&[Cow::Borrowed(CALLER), Cow::Borrowed(CALLED)]).unwrap().into()),
        ("half of them", packed(CALLER)),
        ("strided", packed(STRIDED)),
    ];
    let images = images.into_iter().map(|(name, packed)| (name.to_owned(), packed)).collect();
    let code = Some(SessionCode::default());
    let profile = Profile { devices: vec![device], kernels, images, code, ..Profile::default() };
    let predictions = recorded::predictions(&profile, &Models::shipped());
    profile.with(predictions)
}

/// Arguments of `tiled`, as a session has them.
fn arguments() -> KernelArguments {
    let pointer = PointerTo { at: 0, allocation: 0, allocation_bytes: 4096, offset: 0 };
    let parameter =
        |offset, bytes: usize, pointers| Parameter { offset, bytes: "00".repeat(bytes), pointers };
    let parameters = vec![
        parameter(0, 8, vec![pointer]),
        parameter(8, 4, vec![]),
        parameter(16, 24, vec![]),
        parameter(40, 1, vec![]),
    ];
    KernelArguments { launches: 1, parameters }
}

#[test]
fn each_kernel_is_predicted_from_what_its_image_has() {
    let mut with_ptx = kernel("tiled", Some("text"), 60.0);
    with_ptx.code.as_mut().unwrap().arguments.push(arguments());
    let without_image = kernel("tiled", None, 5.0);
    let of_machine_code = kernel("tiled", Some("binary"), 30.0);
    let of_damage = kernel("tiled", Some("damaged"), 5.0);
    let profile = predicted(vec![with_ptx, of_machine_code, without_image, of_damage]);
    let known: Vec<_> = profile.kernels.iter().map(|kernel| kernel.code.clone().unwrap().known).collect();
    assert_eq!(known[0], Some(KnownCode::Ptx));
    let Some(KnownCode::MachineCode(tables)) = &known[1] else { panic!("{:?}", known[1]) };
    assert_eq!((tables.registers, tables.static_shared_bytes, tables.barriers), (Some(8), 1024, 4));
    assert_eq!(tables.parameters.as_deref(), Some(&[(0, 8), (8, 4), (16, 24), (40, 1)][..]));
    assert_eq!(known[2..], [None, None]);
    let bases: Vec<_> =
        profile.kernels.iter().map(|kernel| &*kernel.prediction.as_ref().unwrap().basis).collect();
    assert_eq!(bases, ["work", "kernel", "kernel", "kernel"]);
    let shares =
        |pairs: &[(&str, f64)]| pairs.iter().map(|&(name, share)| (name.to_owned(), share)).collect();
    assert_eq!(profile.code.unwrap().known, shares(&[("machine_code", 0.3), ("none", 0.1), ("ptx", 0.6)]));
    assert_eq!(profile.prediction_basis, shares(&[("kernel", 0.4), ("work", 0.6)]));
}

/// PTX counts if it lies beside machine code, as after linking, or is packed.
#[test]
fn ptx_counts_wherever_it_lies() {
    let profile = predicted(vec![kernel("stack", Some("linked"), 1.0), kernel("k", Some("fatbin"), 1.0)]);
    for kernel in &profile.kernels {
        assert_eq!(kernel.code.as_ref().unwrap().known, Some(KnownCode::Ptx), "{}", kernel.symbol);
        assert_eq!(kernel.prediction.as_ref().unwrap().basis, "code", "without arguments");
    }
}

/// Tables stand in for a driver that says nothing, and nothing beyond them is guessed.
#[test]
fn tables_say_what_the_driver_would_have_said() {
    let said = kernel("tiled", Some("binary"), 30.0);
    let silent = Kernel { attributes: None, ..said.clone() };
    let profile = predicted(vec![said, silent, Kernel { attributes: None, ..kernel("tiled", None, 1.0) }]);
    let prediction = |index: usize| profile.kernels[index].prediction.clone().unwrap();
    assert_eq!(prediction(0), prediction(1));
    assert_eq!(prediction(2).basis, "launch");
}

/// The work of a function of another module counts; if that module was not kept, it is unknown what
/// the kernel executes.
#[test]
fn functions_of_other_modules_are_followed() {
    let pointer = PointerTo { at: 0, allocation: 0, allocation_bytes: 4096, offset: 0 };
    let parameters = vec![Parameter { offset: 0, bytes: "00".repeat(8), pointers: vec![pointer] }];
    let calling = |image: &str| {
        let mut kernel = kernel("calling", Some(image), 5.0);
        kernel
            .code
            .as_mut()
            .unwrap()
            .arguments
            .push(KernelArguments { launches: 1, parameters: parameters.clone() });
        kernel
    };
    let profile = predicted(vec![calling("two modules"), calling("half of them")]);
    let said = |index: usize| profile.kernels[index].prediction.clone().unwrap();
    assert_eq!((&*said(0).basis, &*said(1).basis), ("work", "code"));
    // 800 warps: of the kernel, the load of its parameter, the store of another, the call and the
    // end; of the function five.
    assert_eq!(said(0).work.unwrap().warp_instructions, 800.0 * (4.0 + 5.0));
    assert_eq!(said(1).work, None);
    assert!(said(1).duration_ns.is_none(), "it was measured");
}

#[test]
fn the_code_of_busy_kernels_is_looked_into() {
    let facts = |gpu_ns: f64| {
        let profile = predicted(vec![
            kernel("strided", Some("strided"), gpu_ns),
            kernel("tiled", Some("binary"), 100.0),
        ]);
        let [strided, tiled] = &profile.kernels[..] else { panic!("two kernels") };
        assert_eq!(tiled.code.as_ref().unwrap().facts, [], "there is no PTX");
        strided.code.as_ref().unwrap().facts.clone()
    };
    let [fact] = &facts(10.0)[..] else { panic!("one fact") };
    assert_eq!((fact.kind, fact.cost, fact.least), (ptx::FactKind::StridedAccesses, 32.0, 4.0));
    assert_eq!(facts(5.0), [], "it takes less than 5% of the time");
}

#[test]
fn machine_code_tells_of_doubles_and_arrays() {
    let profile = predicted(vec![
        kernel("doubles", Some("doubles"), 10.0),
        kernel("stack", Some("binary"), 10.0),
        kernel("tiled", Some("binary"), 10.0),
    ]);
    let facts = |index: usize| {
        let code = profile.kernels[index].code.as_ref().unwrap();
        assert!(matches!(code.known, Some(KnownCode::MachineCode(_))));
        let facts = code.facts.iter();
        facts.map(|fact| (fact.kind, fact.share, fact.cost, fact.least)).collect::<Vec<_>>()
    };
    // Twelve instructions in a loop, and nine outside, for one load.
    assert_eq!(facts(0), [(ptx::FactKind::Doubles, 1.0, 0.0, 105.0)]);
    // A store at a computed index, a load at a known one, and a store to global memory.
    assert_eq!(facts(1), [(ptx::FactKind::LocalArray, 1.0 / 3.0, 0.0, 0.0)]);
    assert_eq!(facts(2), []);
}
