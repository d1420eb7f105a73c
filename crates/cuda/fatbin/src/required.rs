//! The blocks that kernels require (`.reqntid`, `__block_size__`, tile kernels), by kernel name.
//!
//! The driver launches such a kernel with the required block if the caller asks for a block of one
//! thread (`CU_LAUNCH_KERNEL_REQUIRED_BLOCK_DIM`), and has no attribute that tells the block. Only
//! the image does: machine code as an attribute, PTX as a directive. PTX is searched for the
//! directive, not parsed.
//!
//! The bytes come from a program and are not trusted. Each byte is read a fixed number of times,
//! and fatbins above [`MOST_FATBIN_BYTES`] are not decompressed, because this runs while the
//! program loads its code.

use crate::{FATBIN_MAGIC, Image, cubin, kept, machine_code, read};

/// Largest fatbin that is read: those of libraries, with code for many devices, are left out.
const MOST_FATBIN_BYTES: usize = 4 << 20;
/// Maximum kernels of an image.
const MOST_KERNELS: usize = 1 << 12;

/// A kernel's name, and the threads that its block must have along each axis.
pub type RequiredBlock = (Box<str>, [u32; 3]);

/// The kernels of an image of known length that require a block, on a device of this architecture
/// (90 for 9.0). What is damaged requires none.
pub fn required_blocks(image: &[u8], architecture: u32) -> Vec<RequiredBlock> {
    if image.starts_with(&FATBIN_MAGIC.to_le_bytes()) && image.len() > MOST_FATBIN_BYTES {
        return Vec::new();
    }
    let selected = kept::select(image, architecture);
    let mut found: Vec<_> = machine_code(&selected)
        .unwrap_or_default()
        .iter()
        .flat_map(|code| cubin::required_blocks(code).unwrap_or_default())
        .take(MOST_KERNELS)
        .collect();
    if found.is_empty()
        && let Ok(Image::Ptx(ptx)) = read(&selected, architecture)
    {
        found = of_ptx(&ptx.text);
    }
    found
}

/// The kernels of a text of PTX that have the directive `.reqntid`.
fn of_ptx(text: &[u8]) -> Vec<RequiredBlock> {
    let mut found = Vec::new();
    if !text.windows(DIRECTIVE.len()).any(|window| window == DIRECTIVE) {
        return found;
    }
    let mut words = Words(text);
    let mut kernel = None;
    while let Some(word) = words.next() {
        match word {
            b".entry" => kernel = words.next(),
            b"{" | b";" => kernel = None,
            DIRECTIVE => {
                if let Some(name) = kernel.and_then(|name| std::str::from_utf8(name).ok())
                    && let Some(block) = words.block()
                    && found.len() < MOST_KERNELS
                {
                    found.push((name.into(), block));
                }
            }
            _ => {}
        }
    }
    found
}

const DIRECTIVE: &[u8] = b".reqntid";

/// The words of PTX outside comments: names and numbers with the dots in them, and each other
/// character by itself.
#[derive(Clone)]
struct Words<'a>(&'a [u8]);

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let text = self.0.trim_ascii_start();
            let comment = match text {
                [b'/', b'/', ..] => text.iter().position(|&byte| byte == b'\n'),
                [b'/', b'*', ..] => text[2..].windows(2).position(|end| end == b"*/").map(|at| at + 4),
                [] => return None,
                _ => break,
            };
            self.0 = &text[comment.unwrap_or(text.len())..];
        }
        let text = self.0.trim_ascii_start();
        let is_of_word =
            |&byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'$' | b'%');
        let length = text.iter().position(|byte| !is_of_word(byte)).unwrap_or(text.len()).max(1);
        let (word, rest) = text.split_at(length);
        self.0 = rest;
        Some(word)
    }
}

impl Words<'_> {
    /// The extents after the directive: one to three numbers, with commas between them.
    fn block(&mut self) -> Option<[u32; 3]> {
        let mut block = [1; 3];
        for side in &mut block {
            *side = std::str::from_utf8(self.next()?).ok()?.parse().ok()?;
            let mut ahead = self.clone();
            if ahead.next() != Some(b",") {
                break;
            }
            *self = ahead;
        }
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{entry, fatbin};
    use proptest::prelude::*;

    /// The output of `tileiras` of CUDA 13.4 for a vector addition in cuTile 1.7, for sm_90.
    const TILES: &[u8] = include_bytes!("../tests/data/tiles_sm_90.cubin");
    const FOUR: &[u8] = include_bytes!("../tests/data/four_kernels_sm_90.cubin");
    const FOUR_PTX: &[u8] = include_bytes!("../tests/data/four_kernels.ptx");

    fn known(found: &[RequiredBlock]) -> Vec<(&str, [u32; 3])> {
        found.iter().map(|(name, block)| (&**name, *block)).collect()
    }

    #[test]
    fn a_tile_kernel_requires_the_block_that_its_compiler_chose() {
        let name = "vadd_Kt1_A1f32_1l0_A1f32_1l0_A1f32_1l0_I1024";
        assert_eq!(known(&required_blocks(TILES, 90)), [(name, [128, 1, 1])]);
    }

    #[test]
    fn machine_code_and_its_ptx_require_the_same_and_a_maximum_is_no_requirement() {
        for image in [FOUR, FOUR_PTX] {
            assert_eq!(known(&required_blocks(image, 90)), [("stack", [32, 4, 2])]);
        }
    }

    #[test]
    fn a_fatbin_is_read_up_to_a_size() {
        let large = vec![b' '; MOST_FATBIN_BYTES];
        let [code, text] = [entry(2, 90, 0, TILES, 0), entry(1, 90, 0, &large, 0)];
        assert_eq!(required_blocks(&fatbin(std::slice::from_ref(&code)), 90).len(), 1);
        assert_eq!(required_blocks(&fatbin(&[code, text]), 90), []);
    }

    #[test]
    fn the_directive_counts_where_a_kernel_begins_and_not_in_comments() {
        let text = ".version 8.0 // .entry a .reqntid 2\n.visible .entry b(.param .u64 p)\n.maxnreg 32\n\
            .reqntid 8, 4 /* .reqntid 3 */\n{ // .reqntid 9\nret; }\n.entry c .reqntid 7 { ret; }\n\
            .entry d() { ret; }\n.func .reqntid 5 e;\n.entry f().reqntid x { }";
        assert_eq!(known(&of_ptx(text.as_bytes())), [("b", [8, 4, 1]), ("c", [7, 1, 1])]);
    }

    proptest! {
        #[test]
        fn any_text_is_an_answer(text in "(\\.entry|\\.reqntid|[a-z]|/\\*|\\*/|//|[0-9]{1,12}|[ ,;{}()\n]){0,40}") {
            for (name, _) in of_ptx(text.as_bytes()) {
                prop_assert!(text.contains(&*name));
            }
        }

        #[test]
        fn a_damaged_cubin_is_an_answer(at in any::<prop::sample::Index>(), byte: u8, length in any::<prop::sample::Index>()) {
            let mut cubin = TILES[..length.index(TILES.len())].to_vec();
            if !cubin.is_empty() {
                let at = at.index(cubin.len());
                cubin[at] = byte;
            }
            let _ = required_blocks(&cubin, 90);
        }
    }
}
