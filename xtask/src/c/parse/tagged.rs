//! Structures, unions and enumerations: the types that have tags.

use super::Parser;
use crate::c::{Enum, Field, Record, Result, Type};

impl Parser<'_> {
    /// A tag, or a fresh one that no header can contain.
    fn tag(&mut self, kind: &str) -> Result<String> {
        self.skip_attributes()?;
        match self.peek_word() {
            Some(_) => self.word(),
            None => Ok(format!("{kind}#{}", self.unit.records.len() + self.unit.enums.len())),
        }
    }

    /// After `struct` or `union`.
    pub(super) fn record(&mut self, union: bool) -> Result<Type> {
        let tag = self.tag("record")?;
        if !self.unit.records.contains_key(&tag) {
            self.unit.record_order.push(tag.clone());
            let record = Record { union, fields: None, align: None, layout: None, inside: None };
            self.unit.records.insert(tag.clone(), record);
        }
        if self.eat("{") {
            let (fields, align) = self.fields(&tag)?;
            self.complete(&tag, fields, align)?;
        }
        Ok(Type::Record(tag))
    }

    /// Gives a record its members, once.
    fn complete(&mut self, tag: &str, fields: Vec<Field>, align: Option<u64>) -> Result<()> {
        let layout = self.unit.lay_out(&fields, self.unit.records[tag].union, align);
        let Some(layout) = layout else { return Err(self.error(format!("`{tag}` is too large"))) };
        let twice = self.error(format!("`{tag}` is defined twice"));
        match self.unit.records.get_mut(tag) {
            Some(record) if record.fields.is_none() => {
                (record.fields, record.align, record.layout) = (Some(fields), align, Some(layout));
                Ok(())
            }
            _ => Err(twice),
        }
    }

    /// Members up to `}`, and the largest alignment that one asks for.
    fn fields(&mut self, tag: &str) -> Result<(Vec<Field>, Option<u64>)> {
        let (mut fields, mut align): (Vec<Field>, Option<u64>) = (Vec::new(), None);
        while !self.eat("}") {
            let specifiers = self.specifiers()?;
            if specifiers.align.is_some() && !fields.is_empty() {
                return Err(self.error("alignment of a member that is not the first is not understood"));
            }
            align = align.max(specifiers.align);
            if self.eat(";") {
                self.push_field(&mut fields, tag, String::new(), specifiers.base.ty)?;
                continue;
            }
            loop {
                let declared = self.declarator(specifiers.base.clone())?;
                if self.eat(":") {
                    return Err(self.error("bit-fields are not understood"));
                }
                self.push_field(&mut fields, tag, declared.name, declared.ty)?;
                if !self.eat(",") {
                    break;
                }
            }
            self.expect(";")?;
        }
        Ok((fields, align))
    }

    fn push_field(&mut self, fields: &mut Vec<Field>, tag: &str, name: String, ty: Type) -> Result<()> {
        if self.unit.layout_of(&ty).is_none() {
            return Err(self.error(format!("member `{name}` of `{tag}` has an incomplete type")));
        }
        let mut innermost = &ty;
        while let Type::Array { of, .. } = innermost {
            innermost = of;
        }
        if let Type::Record(inner) = innermost
            && inner.contains('#')
            && let Some(record) = self.unit.records.get_mut(inner)
        {
            record.inside = Some((tag.to_owned(), name.clone()));
        }
        fields.push(Field { name, ty });
        Ok(())
    }

    /// After `enum`.
    pub(super) fn enumeration(&mut self) -> Result<Type> {
        let tag = self.tag("enum")?;
        if !self.eat("{") {
            return Ok(Type::Enum(tag));
        }
        let (mut values, mut value) = (Vec::new(), 0_i128);
        while !self.eat("}") {
            let name = self.word()?;
            self.skip_attributes()?;
            if self.eat("=") {
                value = self.constant()?.value;
            }
            self.unit.enumerators.insert(name.clone(), (value, tag.clone()));
            values.push((name, value));
            value = value.checked_add(1).ok_or_else(|| self.error("an enumerator overflows"))?;
            if !self.eat(",") {
                self.expect("}")?;
                break;
            }
        }
        if self.unit.enums.insert(tag.clone(), Enum { values }).is_some() {
            return Err(self.error(format!("`{tag}` is defined twice")));
        }
        self.unit.enum_order.push(tag.clone());
        Ok(Type::Enum(tag))
    }
}
