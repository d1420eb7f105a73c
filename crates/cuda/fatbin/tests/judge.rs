//! `fatbin::cubin` beside `object`, another reader of ELF files: symbols, sections and the lists of
//! attributes of all machine code in this repository.

use fatbin::cubin::{self, Kernel};
use object::elf::FileHeader64;
use object::read::elf::{ElfFile, ElfSection};
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, SymbolFlags};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

type Elf<'a> = ElfFile<'a, FileHeader64<LittleEndian>>;

/// Marks of a symbol: the kernel's entry.
const IS_ENTRY: u8 = 0x10;
/// Attributes of the lists: their formats and numbers.
const WITH_LENGTH: u8 = 4;
const REQNTID: u8 = 0x10;
const MAX_THREADS: u8 = 0x05;
const REGCOUNT: u8 = 0x2f;

fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [root.join("tests/data"), root.join("../../kernels/kernels/binaries")];
    let all = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let is_image = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "cubin" || kind == "fatbin");
    all.map(|entry| entry.unwrap().path()).filter(is_image).collect()
}

/// The attributes that have a length, of the section of this name: numbers and values.
fn attributes<'a>(elf: &Elf<'a>, section: &str) -> Vec<(u8, &'a [u8])> {
    let Some(section) = elf.section_by_name(section) else { return Vec::new() };
    let mut rest = section.data().unwrap();
    let mut all = Vec::new();
    while let [format, number, low, high, behind @ ..] = rest {
        rest = behind;
        if *format == WITH_LENGTH {
            let (value, behind) = rest.split_at(u16::from_le_bytes([*low, *high]).into());
            all.push((*number, value));
            rest = behind;
        }
    }
    all
}

fn words(value: &[u8]) -> Vec<u32> {
    value.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// The extents that the last attribute of this number gives.
fn extents(attributes: &[(u8, &[u8])], number: u8) -> Option<[u32; 3]> {
    let (_, value) = attributes.iter().rfind(|(known, _)| *known == number)?;
    words(value).try_into().ok()
}

#[test]
fn kernels_are_those_that_object_finds() {
    let (mut kernels, mut required) = (0, 0);
    for file in files() {
        let image = std::fs::read(&file).unwrap();
        for code in fatbin::machine_code(&image).unwrap() {
            let elf = Elf::parse(&code[..]).unwrap();
            let of_symbols = attributes(&elf, ".nv.info");
            let reserved = elf.section_by_name(".nv.shared.reserved.0").map_or(0, |_| 1024);
            let mut requires = BTreeMap::new();
            for symbol in elf.symbols() {
                let name = symbol.name().unwrap();
                let SymbolFlags::Elf { st_info, st_other } = symbol.flags() else { panic!("an ELF file") };
                let is_kernel = st_info.0 & 0xf == object::elf::STT_FUNC.0 && st_other.0 & IS_ENTRY != 0;
                let found = cubin::kernel(&code, name).unwrap();
                assert_eq!(found.is_some(), is_kernel, "{name} of {}", file.display());
                let Some(found) = found else { continue };
                let own = attributes(&elf, &format!(".nv.info.{name}"));
                let registers = of_symbols.iter().filter(|(number, _)| *number == REGCOUNT);
                let mut registers = registers.map(|(_, value)| words(value));
                let index = symbol.index().0 as u32;
                let shared = elf.section_by_name(&format!(".nv.shared.{name}"));
                let shared_bytes = shared.map_or(0, |section: ElfSection<'_, '_, _>| section.size());
                let expected = Kernel {
                    registers: registers.find(|words| words[0] == index).map(|words| words[1]),
                    static_shared_bytes: shared_bytes.saturating_sub(reserved) as u32,
                    max_threads: extents(&own, MAX_THREADS),
                    required_threads: extents(&own, REQNTID),
                    ..found.clone()
                };
                assert_eq!(found, expected, "{name} of {}", file.display());
                requires.extend(found.required_threads.map(|block| (name.to_owned(), block)));
                kernels += 1;
            }
            required += requires.len();
            let known = cubin::required_blocks(&code).unwrap();
            let known: BTreeMap<_, _> = known.into_iter().map(|(name, block)| (name.into(), block)).collect();
            assert_eq!(known, requires, "{}", file.display());
        }
    }
    assert!(kernels > 20 && required > 2, "{kernels} kernels, of which {required} require a block");
}
