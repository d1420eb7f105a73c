//! Sizes, alignments and offsets, as the System V ABI for x86-64 lays records out.
//!
//! Needed for array bounds that say `sizeof`, and for the assertions in the generated types. The
//! layout test of `cuda-abi` holds the outcome against a C compiler.

use super::{Field, Type, Unit};

/// Bytes that a type takes, and its alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// `sizeof`
    pub size: u64,
    /// `_Alignof`
    pub align: u64,
}

/// The layout of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordLayout {
    /// The record's own size and alignment.
    pub whole: Layout,
    /// The offset of each member.
    pub offsets: Vec<u64>,
}

impl Layout {
    const fn scalar(bytes: u64) -> Layout {
        Layout { size: bytes, align: bytes }
    }
}

impl Unit {
    /// Size and alignment of `ty`; `None` where it is incomplete or a function.
    pub fn layout_of(&self, ty: &Type) -> Option<Layout> {
        match ty {
            Type::Void | Type::Function(_) => None,
            Type::Char => Some(Layout::scalar(1)),
            Type::Int { bits, .. } | Type::Float { bits } => Some(Layout::scalar(u64::from(bits / 8))),
            Type::Enum(_) => Some(Layout::scalar(4)),
            Type::Pointer { .. } => Some(Layout::scalar(8)),
            Type::Named(name) => self.layout_of(&self.typedef(name)?.ty),
            Type::Array { of, len } => {
                let element = self.layout_of(of)?;
                Some(Layout { size: element.size.checked_mul((*len)?)?, align: element.align })
            }
            Type::Record(tag) => Some(self.records.get(tag)?.layout.as_ref()?.whole),
        }
    }

    /// The layout of a record with these members; `None` where one is incomplete or the whole
    /// exceeds 64 bits.
    pub fn lay_out(&self, fields: &[Field], union: bool, align: Option<u64>) -> Option<RecordLayout> {
        let mut whole = Layout { size: 0, align: align.unwrap_or(1) };
        let mut offsets = Vec::new();
        for field in fields {
            let field = self.layout_of(&field.ty)?;
            let offset = if union { 0 } else { whole.size.checked_next_multiple_of(field.align)? };
            offsets.push(offset);
            whole.align = whole.align.max(field.align);
            whole.size = whole.size.max(offset.checked_add(field.size)?);
        }
        whole.size = whole.size.checked_next_multiple_of(whole.align)?;
        Some(RecordLayout { whole, offsets })
    }
}
