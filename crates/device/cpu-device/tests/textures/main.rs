//! Arrays, textures and surfaces, compared with the formulas of the programming guide's appendix on
//! texture fetching ([`reference`]).

#[path = "../common/mod.rs"]
mod common;
mod kernel;
mod reference;

use apex_random::Random;
use common::{Context, cu, fails, ok, upload};
use cuda_abi::Plain;
use cuda_abi::types::*;
use kernel::*;
use reference::{Reference, border, texels};
use std::ffi::c_void;
use std::time::Duration;

const MODES: [CUaddress_mode; 4] =
    [CU_TR_ADDRESS_MODE_WRAP, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_MIRROR, CU_TR_ADDRESS_MODE_BORDER];

#[test]
fn fetches_are_the_programming_guides() {
    let _context = Context::new();
    let mut random = Random::new(1);
    let shapes = [([37, 0, 0], 1, "1d"), ([19, 23, 0], 2, "2d"), ([7, 5, 9], 3, "3d")];
    let formats =
        [CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_SIGNED_INT16, CU_AD_FORMAT_HALF, CU_AD_FORMAT_FLOAT];
    for ((extent, dimensions, geometry), format) in
        shapes.iter().flat_map(|shape| formats.map(|format| (*shape, format)))
    {
        for (index, (mode, channels)) in MODES.into_iter().zip([1, 2, 4, 4]).enumerate() {
            let sizes = extent.map(|extent: usize| extent.max(1));
            let count = sizes.iter().product::<usize>() * channels;
            let (mut bytes, values) = texels(&mut random, format, count);
            let created = array(&descriptor(extent, format, channels as u32, 0));
            let row = bytes.len() / sizes[1] / sizes[2];
            copy(created, &mut bytes, row, sizes[1], sizes[2], true);
            let mut back = vec![0; bytes.len()];
            copy(created, &mut back, row, sizes[1], sizes[2], false);
            assert_eq!(bytes, back);
            for filter in [CU_TR_FILTER_MODE_POINT, CU_TR_FILTER_MODE_LINEAR] {
                let normalized = index % 2 == 0 || random.below(2) == 0;
                let flags = if normalized { CU_TRSF_NORMALIZED_COORDINATES } else { 0 };
                let object = texture(&of_array(created), &sampled(mode, filter, flags));
                let extent = sizes.map(|extent| extent as i64);
                let border = border(format, channels);
                let reference =
                    Reference { extent, channels, values: values.clone(), mode, normalized, border };
                let coordinates: Vec<[f32; 3]> = (0..200)
                    .map(|_| {
                        sizes.map(|extent| {
                            // From one image before to one image behind, in 1/1024 of a texel or
                            // finer.
                            let texels =
                                random.below(3 * 1024 * extent as u64) as f32 / 1024.0 - extent as f32;
                            if normalized { texels / extent as f32 } else { texels }
                        })
                    })
                    .collect();
                let inputs: Vec<[u32; 4]> =
                    coordinates.iter().map(|[x, y, z]| floats([*x, *y, *z, 0.0])).collect();
                let listed = ["%f5", "%f5, %f6", "%f5, %f6, %f7, %f7"][dimensions - 1];
                let instruction = format!("tex.{geometry}.v4.f32.f32 {RESULTS}, [%rd1, {{{listed}}}];");
                let results = run(&instruction, object, &inputs).unwrap();
                for (coordinates, result) in coordinates.iter().zip(results) {
                    let mut used = *coordinates;
                    used[dimensions..].fill(0.0);
                    let expected = match filter {
                        CU_TR_FILTER_MODE_POINT => reference.nearest(used),
                        _ => reference.linear(used, dimensions),
                    };
                    let found = result.map(f32::from_bits);
                    assert_eq!(
                        found, expected,
                        "{geometry} format {format} mode {mode} filter {filter} {used:?}"
                    );
                }
                ok!(cuTexObjectDestroy(object));
            }
            ok!(cuArrayDestroy(created));
        }
    }
}

#[test]
fn linear_and_pitched_memory_is_read_in_place() {
    let _context = Context::new();
    let mut random = Random::new(2);
    let bytes = random.bytes(4 * 1000);
    let words: Vec<u32> = bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    let memory = upload(&bytes);
    let mut resource: CUDA_RESOURCE_DESC = Plain::zeroed();
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear = CUDA_RESOURCE_DESC_v1_res_linear {
        devPtr: memory,
        format: CU_AD_FORMAT_UNSIGNED_INT32,
        numChannels: 1,
        sizeInBytes: bytes.len(),
    };
    let whole = sampled(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, CU_TRSF_READ_AS_INTEGER);
    let object = texture(&resource, &whole);
    let inputs: Vec<[u32; 4]> =
        (0..300).map(|_| [(random.below(1400) as i32 - 200) as u32, 0, 0, 0]).collect();
    let found = run(&format!("tex.1d.v4.u32.s32 {RESULTS}, [%rd1, {{%r5}}];"), object, &inputs).unwrap();
    for (input, found) in inputs.iter().zip(found) {
        // What is outside is 0.
        assert_eq!(found[0], words.get(input[0] as usize).copied().unwrap_or(0), "{input:?}");
    }

    // 30 texels of four bytes in rows of 128 bytes.
    resource.resType = CU_RESOURCE_TYPE_PITCH2D;
    resource.res.pitch2D = CUDA_RESOURCE_DESC_v1_res_pitch2D {
        devPtr: memory,
        format: CU_AD_FORMAT_SIGNED_INT8,
        numChannels: 4,
        width: 30,
        height: 31,
        pitchInBytes: 128,
    };
    let object = texture(&resource, &whole);
    let inputs: Vec<[u32; 4]> = (0..300)
        .map(|_| floats([random.below(30) as f32 + 0.5, random.below(31) as f32 + 0.25, 0.0, 0.0]))
        .collect();
    let found = run(&format!("tex.2d.v4.s32.f32 {RESULTS}, [%rd1, {{%f5, %f6}}];"), object, &inputs).unwrap();
    for (input, found) in inputs.iter().zip(found) {
        let [x, y] = [input[0], input[1]].map(|bits| f32::from_bits(bits) as usize);
        let expected: [u32; 4] =
            std::array::from_fn(|channel| i32::from(bytes[128 * y + 4 * x + channel].cast_signed()) as u32);
        assert_eq!(found, expected);
    }

    // The memory is the program's to free; a kernel that reads it then faults.
    ok!(cuMemFree_v2(memory));
    let code =
        run(&format!("tex.2d.v4.s32.f32 {RESULTS}, [%rd1, {{%f5, %f6}}];"), object, &inputs).unwrap_err();
    assert_eq!(code, CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn layers_faces_levels_and_gathers() {
    let _context = Context::new();
    let mut random = Random::new(3);
    let (width, height, layers) = (12usize, 10usize, 5usize);
    let (mut bytes, values) = texels(&mut random, CU_AD_FORMAT_FLOAT, width * height * layers);
    let layered = array(&descriptor([width, height, layers], CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED));
    copy(layered, &mut bytes, 4 * width, height, layers, true);
    let point = sampled(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
    let object = texture(&of_array(layered), &point);
    let mut inputs = Vec::new();
    for _ in 0..200 {
        let (layer, x, y) =
            (random.below(7) as u32, random.below(12) as f32 + 0.5, random.below(10) as f32 + 0.5);
        inputs.push([layer, x.to_bits(), y.to_bits(), 0]);
    }
    let fetch = format!("tex.a2d.v4.f32.f32 {RESULTS}, [%rd1, {{%r5, %f6, %f7, %f7}}];");
    let gather = format!("tld4.r.a2d.v4.f32.f32 {RESULTS}, [%rd1, {{%r5, %f6, %f7, %f7}}];");
    let (fetched, gathered) = (run(&fetch, object, &inputs).unwrap(), run(&gather, object, &inputs).unwrap());
    for ((input, fetched), gathered) in inputs.iter().zip(fetched).zip(gathered) {
        let layer = (input[0] as usize).min(layers - 1);
        let [x, y] = [input[1], input[2]].map(|bits| f32::from_bits(bits) as usize);
        let at = |x: usize, y: usize| values[(layer * height + y.min(height - 1)) * width + x.min(width - 1)];
        assert_eq!(f32::from_bits(fetched[0]), at(x, y));
        // At a texel's centre the footprint begins with that texel.
        let four = [at(x, y + 1), at(x + 1, y + 1), at(x + 1, y), at(x, y)];
        assert_eq!(gathered.map(f32::from_bits), four);
    }

    // Each face of a cube has its number in all texels.
    let (mut bytes, _) = texels(&mut random, CU_AD_FORMAT_FLOAT, 6 * 16);
    for (face, texels) in bytes.chunks_mut(64).enumerate() {
        texels.chunks_mut(4).for_each(|texel| texel.copy_from_slice(&(face as f32).to_le_bytes()));
    }
    let cube = array(&descriptor([4, 4, 6], CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP));
    copy(cube, &mut bytes, 16, 4, 6, true);
    let linear = sampled(CU_TR_ADDRESS_MODE_WRAP, CU_TR_FILTER_MODE_LINEAR, CU_TRSF_NORMALIZED_COORDINATES);
    let object = texture(&of_array(cube), &linear);
    let directions = [[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]];
    let inputs: Vec<[u32; 4]> = directions
        .iter()
        .map(|direction| {
            let [x, y, z] =
                direction.map(|axis: i32| axis as f32 * 3.0 + random.below(200) as f32 / 100.0 - 1.0);
            floats([x, y, z, 0.0])
        })
        .collect();
    let fetch = format!("tex.cube.v4.f32.f32 {RESULTS}, [%rd1, {{%f5, %f6, %f7, %f7}}];");
    let faces = run(&fetch, object, &inputs).unwrap();
    let faces: Vec<f32> = faces.iter().map(|face| f32::from_bits(face[0])).collect();
    assert_eq!(faces, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);

    // Each level of a mipmapped array has its number in all texels.
    let mut mipmapped = std::ptr::null_mut();
    ok!(cuMipmappedArrayCreate(&mut mipmapped, &descriptor([16, 8, 0], CU_AD_FORMAT_FLOAT, 1, 0), 99));
    for level in 0..5 {
        let (mut part, mut found) = (std::ptr::null_mut(), Plain::zeroed());
        ok!(cuMipmappedArrayGetLevel(&mut part, mipmapped, level));
        ok!(cuArray3DGetDescriptor_v2(&mut found, part));
        assert_eq!((found.Width, found.Height), (16 >> level, (8 >> level).max(1)));
        let count = found.Width * found.Height;
        let mut bytes: Vec<u8> = std::iter::repeat_n((level as f32).to_le_bytes(), count).flatten().collect();
        copy(part, &mut bytes, 4 * found.Width, found.Height, 1, true);
        fails!(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(part));
    }
    fails!(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetLevel(&mut std::ptr::null_mut(), mipmapped, 5));
    let mut resource: CUDA_RESOURCE_DESC = Plain::zeroed();
    resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    resource.res.mipmap = CUDA_RESOURCE_DESC_v1_res_mipmap { hMipmappedArray: mipmapped };
    let filtered = CUDA_TEXTURE_DESC { mipmapFilterMode: CU_TR_FILTER_MODE_LINEAR, ..linear };
    let bounded = CUDA_TEXTURE_DESC { mipmapLevelBias: 1.0, maxMipmapLevelClamp: 3.0, ..linear };
    let (filtered, bounded) = (texture(&resource, &filtered), texture(&resource, &bounded));
    let inputs: Vec<[u32; 4]> =
        (0..60).map(|step| floats([0.3, 0.6, step as f32 / 8.0 - 1.0, 0.0])).collect();
    let level = format!("tex.level.2d.v4.f32.f32 {RESULTS}, [%rd1, {{%f5, %f6}}], %f7;");
    let (filtered, bounded) =
        (run(&level, filtered, &inputs).unwrap(), run(&level, bounded, &inputs).unwrap());
    for (input, (filtered, bounded)) in inputs.iter().zip(filtered.iter().zip(bounded)) {
        let wanted = f32::from_bits(input[2]);
        assert_eq!(f32::from_bits(filtered[0]), wanted.clamp(0.0, 4.0));
        assert_eq!(f32::from_bits(bounded[0]), ((wanted + 1.0).clamp(0.0, 3.0) + 0.5).floor());
    }
    // Four texels of the largest level for a pixel in each direction: level 2.
    let gradient =
        format!("tex.grad.2d.v4.f32.f32 {RESULTS}, [%rd1, {{%f5, %f6}}], {{%f7, %f8}}, {{%f8, %f7}};");
    let object = texture(&resource, &linear);
    let found = run(&gradient, object, &[floats([0.5, 0.5, 4.0 / 16.0, 0.0])]).unwrap();
    assert_eq!(f32::from_bits(found[0][0]), 2.0);
    let query = "txq.width.b32 %r10, [%rd1]; txq.height.b32 %r11, [%rd1]; txq.num_mipmap_levels.b32 %r12, [%rd1]; \
                 txq.normalized_coords.b32 %r13, [%rd1];";
    assert_eq!(run(query, object, &[[0; 4]]).unwrap(), [[16, 8, 5, 1]]);
    ok!(cuMipmappedArrayDestroy(mipmapped));
}

#[test]
fn surfaces_are_read_and_written() {
    let _context = Context::new();
    let mut random = Random::new(4);
    let (width, height) = (16usize, 6usize);
    let mut bytes = random.bytes(8 * width * height);
    let before = bytes.clone();
    let created =
        array(&descriptor([width, height, 0], CU_AD_FORMAT_UNSIGNED_INT32, 2, CUDA_ARRAY3D_SURFACE_LDST));
    copy(created, &mut bytes, 8 * width, height, 1, true);
    let mut object = 0;
    ok!(cuSurfObjectCreate(&mut object, &of_array(created)));
    let inputs: Vec<[u32; 4]> = (0..96).map(|index| [8 * (index % 16), index / 16, index, 0]).collect();
    let load = "suld.b.2d.v2.b32.trap {%r10, %r11}, [%rd1, {%r5, %r6}]; suld.b.2d.b64.trap %rd9, [%rd1, {%r5, %r6}]; \
                mov.b64 {%r12, %r13}, %rd9;";
    for (input, found) in inputs.iter().zip(run(load, object, &inputs).unwrap()) {
        let at = 8 * (input[1] as usize * width) + input[0] as usize;
        let word = |at: usize| u32::from_le_bytes(before[at..at + 4].try_into().unwrap());
        assert_eq!(found, [word(at), word(at + 4), word(at), word(at + 4)]);
    }
    // Each thread stores its index in one byte, and adds it to the word behind.
    let store = "cvt.u16.u32 %h1, %r7; sust.b.2d.b8.trap [%rd1, {%r5, %r6}], {%h1}; add.u32 %r5, %r5, 4; \
                 sured.b.add.2d.u32.trap [%rd1, {%r5, %r6}], %r7;";
    run(store, object, &inputs).unwrap();
    let mut after = vec![0; bytes.len()];
    copy(created, &mut after, 8 * width, height, 1, false);
    for (index, (after, before)) in after.chunks(8).zip(before.chunks(8)).enumerate() {
        assert_eq!((after[0], &after[1..4]), (index as u8, &before[1..4]));
        let word = |bytes: &[u8]| u32::from_le_bytes(bytes[4..].try_into().unwrap());
        assert_eq!(word(after), word(before).wrapping_add(index as u32));
    }
    // Outside: zero reads 0 and stores nothing, clamp goes to the edge, trap is a fault.
    let outside = [[8 * 16, 0, 0, 0], [(-8i32) as u32, 2, 0, 0], [0, 6, 0, 0]];
    let zero = "mov.b32 %r10, 7; suld.b.2d.b32.zero %r10, [%rd1, {%r5, %r6}]; sust.b.2d.b32.zero [%rd1, {%r5, %r6}], %r10;";
    assert!(run(zero, object, &outside).unwrap().iter().all(|found| found[0] == 0));
    let clamp = "suld.b.2d.b64.clamp %rd9, [%rd1, {%r5, %r6}]; mov.b64 {%r10, %r11}, %rd9;";
    let found = run(clamp, object, &outside).unwrap();
    for (found, at) in found.iter().zip([8 * 15, 8 * 2 * 16, 8 * 5 * 16]) {
        assert_eq!(found[0], u32::from_le_bytes(after[at..at + 4].try_into().unwrap()));
    }
    let query = "suq.width.b32 %r10, [%rd1]; suq.height.b32 %r11, [%rd1];";
    assert_eq!(run(query, object, &[[0; 4]]).unwrap()[0][..2], [16, 6]);
    assert_eq!(
        run("suld.b.2d.b32.trap %r10, [%rd1, {%r5, %r6}];", object, &outside),
        Err(CUDA_ERROR_ILLEGAL_ADDRESS)
    );
}

#[test]
fn formatted_stores_convert() {
    let _context = Context::new();
    let created = array(&descriptor([8, 0, 0], CU_AD_FORMAT_HALF, 2, CUDA_ARRAY3D_SURFACE_LDST));
    let mut object = 0;
    ok!(cuSurfObjectCreate(&mut object, &of_array(created)));
    let inputs: Vec<[u32; 4]> =
        (0..8u32).map(|x| [x, (x as f32 + 0.5).to_bits(), (-(x as f32)).to_bits(), 0]).collect();
    run("sust.p.1d.v2.b32.trap [%rd1, {%r5}], {%r6, %r7};", object, &inputs).unwrap();
    let object = texture(&of_array(created), &sampled(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0));
    let found = run(&format!("tex.1d.v4.f32.s32 {RESULTS}, [%rd1, {{%r5}}];"), object, &inputs).unwrap();
    for (input, found) in inputs.iter().zip(found) {
        assert_eq!(found, [input[1], input[2], 0, 0]);
    }
}

#[test]
fn copies_to_and_from_arrays_in_every_form() {
    let _context = Context::new();
    let mut random = Random::new(5);
    let bytes = random.bytes(400);
    let (mut first, mut second) = (std::ptr::null_mut(), std::ptr::null_mut());
    let flat = CUDA_ARRAY_DESCRIPTOR { Width: 100, Height: 0, Format: CU_AD_FORMAT_FLOAT, NumChannels: 1 };
    ok!(cuArrayCreate_v2(&mut first, &flat));
    ok!(cuArrayCreate_v2(&mut second, &flat));
    let mut told: CUDA_ARRAY_DESCRIPTOR = Plain::zeroed();
    ok!(cuArrayGetDescriptor_v2(&mut told, first));
    assert_eq!((told.Width, told.Height, told.Format, told.NumChannels), (100, 0, CU_AD_FORMAT_FLOAT, 1));
    let memory = upload(&vec![0; 400]);
    let mut back = vec![0u8; 400];
    let stream = common::stream(0);
    ok!(cuMemcpyHtoA_v2(first, 0, bytes.as_ptr().cast(), 200));
    ok!(cuMemcpyHtoAAsync_v2(first, 200, bytes[200..].as_ptr().cast(), 200, stream));
    ok!(cuStreamSynchronize(stream));
    ok!(cuMemcpyAtoA_v2(second, 0, first, 0, 400));
    ok!(cuMemcpyAtoD_v2(memory, second, 0, 400));
    ok!(cuMemcpyDtoA_v2(first, 40, memory, 100));
    ok!(cuMemcpyAtoH_v2(back.as_mut_ptr().cast(), first, 0, 200));
    ok!(cuMemcpyAtoHAsync_v2(back[200..].as_mut_ptr().cast(), first, 200, 200, stream));
    ok!(cuStreamSynchronize(stream));
    let mut expected = bytes.clone();
    expected[40..140].copy_from_slice(&bytes[..100]);
    assert_eq!(back, expected);
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA_v2(first, 201, bytes.as_ptr().cast(), 200));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuMemcpyAtoA_v2(first, 0, std::ptr::null_mut(), 0, 4));

    // As a node of a graph, which tells what it was given.
    let (mut graph, mut node, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuGraphCreate(&mut graph, 0));
    let given = CUDA_MEMCPY3D {
        srcMemoryType: CU_MEMORYTYPE_DEVICE,
        srcDevice: memory,
        dstMemoryType: CU_MEMORYTYPE_ARRAY,
        dstArray: second,
        dstXInBytes: 16,
        WidthInBytes: 32,
        Height: 1,
        Depth: 1,
        ..Plain::zeroed()
    };
    ok!(cuGraphAddMemcpyNode(&mut node, graph, std::ptr::null(), 0, &given, std::ptr::null_mut()));
    let mut told: CUDA_MEMCPY3D = Plain::zeroed();
    ok!(cuGraphMemcpyNodeGetParams(node, &mut told));
    assert_eq!(
        (told.dstMemoryType, told.dstArray, told.dstXInBytes, told.WidthInBytes),
        (CU_MEMORYTYPE_ARRAY, second, 16, 32)
    );
    ok!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuStreamSynchronize(stream));
    ok!(cuMemcpyAtoH_v2(back.as_mut_ptr().cast(), second, 0, 400));
    assert_eq!((&back[..16], &back[16..48], &back[48..]), (&bytes[..16], &bytes[..32], &bytes[48..]));
    ok!(cuArrayDestroy(first));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(first));
}

/// Programs end an object right after the launch that uses it.
#[test]
fn an_object_may_be_destroyed_while_a_kernel_uses_it() {
    extern "C" fn hold_the_stream_up(_: *mut c_void) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let _context = Context::new();
    let float = CU_AD_FORMAT_FLOAT;
    let created = array(&descriptor([4, 4, 0], float, 1, CUDA_ARRAY3D_SURFACE_LDST));
    let resource = of_array(created);
    let none: *mut c_void = std::ptr::null_mut();
    for is_texture in [true, false] {
        let mut object = 0;
        let instruction = if is_texture {
            let description = sampled(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
            ok!(cuTexObjectCreate(&mut object, &resource, &description, std::ptr::null()));
            format!("tex.2d.v4.f32.f32 {RESULTS}, [%rd1, {{%f5, %f6}}];")
        } else {
            ok!(cuSurfObjectCreate(&mut object, &resource));
            "sust.b.2d.b32.trap [%rd1, {%r5, %r6}], %r7;".to_string()
        };
        ok!(cuLaunchHostFunc(none.cast(), Some(hold_the_stream_up), none));
        let results = run_and(&instruction, object, &[[0; 4]], || {
            if is_texture {
                ok!(cuTexObjectDestroy(object));
            } else {
                ok!(cuSurfObjectDestroy(object));
            }
        });
        assert!(results.is_ok(), "{results:?}");
    }
    ok!(cuArrayDestroy(created));
}

#[test]
fn what_can_not_be_is_refused() {
    let _context = Context::new();
    let mut made = std::ptr::null_mut();
    let float = CU_AD_FORMAT_FLOAT;
    for (extent, channels, flags) in [
        ([0, 4, 0], 1, 0),
        ([4, 4, 0], 3, 0),
        ([4, 0, 4], 1, 0),
        ([4, 5, 6], 1, CUDA_ARRAY3D_CUBEMAP),
        ([4, 4, 7], 1, CUDA_ARRAY3D_CUBEMAP),
        ([4, 4, 0], 1, CUDA_ARRAY3D_LAYERED),
        ([200_000, 0, 0], 1, 0),
        ([4, 4, 4], 1, 1 << 20),
    ] {
        fails!(
            CUDA_ERROR_INVALID_VALUE,
            cuArray3DCreate_v2(&mut made, &descriptor(extent, float, channels, flags))
        );
    }
    fails!(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate_v2(&mut made, &descriptor([4, 4, 0], 77, 1, 0)));
    fails!(
        CUDA_ERROR_NOT_SUPPORTED,
        cuArray3DCreate_v2(&mut made, &descriptor([4, 4, 0], CU_AD_FORMAT_BC1_UNORM, 1, 0))
    );
    let created = array(&descriptor([4, 4, 0], CU_AD_FORMAT_UNSIGNED_INT8, 4, 0));
    let (resource, mut object, none) = (of_array(created), 0, std::ptr::null::<c_void>());
    let create = |description: CUDA_TEXTURE_DESC| {
        let mut object = 0;
        cu!(cuTexObjectCreate(&mut object, &resource, &description, std::ptr::null()))
    };
    let linear = sampled(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, 0);
    assert_eq!(create(linear), CUDA_SUCCESS);
    assert_eq!(create(CUDA_TEXTURE_DESC { flags: CU_TRSF_SRGB, ..linear }), CUDA_ERROR_NOT_SUPPORTED);
    assert_eq!(
        create(CUDA_TEXTURE_DESC { flags: CU_TRSF_READ_AS_INTEGER, ..linear }),
        CUDA_ERROR_INVALID_VALUE
    );
    assert_eq!(create(CUDA_TEXTURE_DESC { addressMode: [9; 3], ..linear }), CUDA_ERROR_INVALID_VALUE);
    fails!(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&mut object, none.cast(), &linear, none.cast()));
    fails!(CUDA_ERROR_INVALID_VALUE, cuTexObjectDestroy(12345));
    // Surfaces have to be meant from the start.
    fails!(CUDA_ERROR_INVALID_VALUE, cuSurfObjectCreate(&mut object, &resource));
    // A handle that names nothing is a fault of the kernel.
    let fetch = format!("tex.2d.v4.f32.f32 {RESULTS}, [%rd1, {{%f5, %f6}}];");
    assert_eq!(run(&fetch, 12345, &[[0; 4]]), Err(CUDA_ERROR_ILLEGAL_INSTRUCTION));
}
