//! Loads and stores: up to 16 bytes at once, kept packed until they are used.

use std::fmt::Write;

use super::super::graph::{ElementType, Op, Value};
use super::super::nest::{Access, Place};
use super::super::schedule::Held;
use super::layout::Base;
use super::{At, Class, Emitter, FIRST, line, words};

impl Emitter<'_> {
    /// An element of a tensor in memory.
    pub(super) fn read(&mut self, access: &Access, at: At) -> String {
        match access.place {
            Place::Main => {
                let packed = self.load(access, at.chunk);
                self.widened(access.element, &packed, at.lane)
            }
            _ => self.scalar(access, at),
        }
    }

    /// A vector of a tensor, as it is in memory.
    pub(super) fn load(&mut self, access: &Access, chunk: usize) -> Vec<String> {
        // What does not change from chunk to chunk is read once.
        let chunk = if self.step(&access.strides) == 0 { 0 } else { chunk };
        if let Some(known) = self.packed.get(&(access.value, chunk)) {
            return known.clone();
        }
        let offset = chunk * self.step(&access.strides) * access.element.size();
        let staged = self.staged.get(&access.value).copied().filter(|_| self.schedule.held == Held::Shared);
        let packed = match staged {
            Some(start) if !self.is_staging => {
                let address = self.staged_address(access, start);
                self.loads("shared", &address, offset, access, chunk)
            }
            _ => {
                let address = self.base(access, Base::Iteration);
                let space = format!("global{}", self.hint(access, false));
                self.loads(&space, &address, offset, access, chunk)
            }
        };
        if let Some(start) = staged.filter(|_| self.is_staging) {
            let address = self.staged_address(access, start);
            let guard = self.guard(chunk);
            let bytes = access.element.size() * self.schedule.vector;
            self.stores("shared", &address, offset, bytes, &packed, guard);
        }
        self.packed.insert((access.value, chunk), packed.clone());
        packed
    }

    /// The offset of the thread's elements of this iteration in shared memory.
    fn staged_address(&mut self, access: &Access, start: usize) -> String {
        let column = self.column(0);
        let size = access.element.size().to_string();
        let shared = self.word("mov.u32", &["scratch"]);
        let address = self.word("mad.lo.u32", &[&column, &size, &shared]);
        self.word("add.u32", &[&address, &start.to_string()])
    }

    /// A vector, by loads as wide as can be.
    fn loads(
        &mut self,
        space: &str,
        address: &str,
        offset: usize,
        access: &Access,
        chunk: usize,
    ) -> Vec<String> {
        let count = if access.strides.last() == Some(&0) { 1 } else { self.schedule.vector };
        let words = words(access.element, count);
        let guard = match access.place {
            Place::Main => self.guard(chunk),
            _ => None,
        };
        let registers: Vec<String> = (0..words).map(|_| self.register(Class::Word)).collect();
        self.loads_into(&registers, space, address, offset, access.element.size() * count, guard);
        registers
    }

    /// Loads this number of bytes into these registers; zeros if the guard does not hold.
    pub(super) fn loads_into(
        &mut self,
        registers: &[String],
        space: &str,
        address: &str,
        offset: usize,
        bytes: usize,
        guard: Option<String>,
    ) {
        let at = self.guarded(guard.as_deref(), registers);
        if bytes == 2 {
            let half = self.register(Class::Half);
            if guard.is_some() {
                line!(self, "mov.b16 {half}, 0;");
            }
            line!(self, "{at}ld.{space}.b16 {half}, [{address}+{offset}];");
            line!(self, "cvt.u32.u16 {}, {half};", registers[0]);
            return;
        }
        for (place, piece) in registers.chunks(4).enumerate() {
            let (width, list) = vector(piece);
            line!(self, "{at}ld.{space}{width}.b32 {list}, [{address}+{}];", offset + 16 * place);
        }
    }

    /// Zeros where nothing is loaded, and the guard as instructions have it.
    fn guarded(&mut self, guard: Option<&str>, registers: &[String]) -> String {
        let Some(guard) = guard else { return String::new() };
        for register in registers {
            line!(self, "mov.b32 {register}, 0;");
        }
        format!("@{guard} ")
    }

    pub(super) fn stores(
        &mut self,
        space: &str,
        address: &str,
        offset: usize,
        bytes: usize,
        packed: &[String],
        guard: Option<String>,
    ) {
        let at = guard.map_or(String::new(), |guard| format!("@{guard} "));
        if bytes == 2 {
            let half = self.register(Class::Half);
            line!(self, "cvt.u16.u32 {half}, {};", packed[0]);
            line!(self, "{at}st.{space}.b16 [{address}+{offset}], {half};");
            return;
        }
        for (place, piece) in packed.chunks(4).enumerate() {
            let (width, list) = vector(piece);
            line!(self, "{at}st.{space}{width}.b32 [{address}+{}], {list};", offset + 16 * place);
        }
    }

    /// One number of a row, or one choice.
    fn scalar(&mut self, access: &Access, at: At) -> String {
        let base = if access.place == Place::Short { Base::Thread } else { Base::Row };
        let address = self.base(access, base);
        let guard = match (access.place, self.schedule.is_flat()) {
            (Place::Short, _) => Some(self.is_choice()),
            (_, true) => self.guard(at.chunk),
            _ => None,
        };
        let offset = if self.schedule.is_flat() { at.chunk * self.step(&access.strides) } else { 0 };
        let offset = offset * access.element.size();
        let register = self.register(Class::Word);
        let guarded = self.guarded(guard.as_deref(), std::slice::from_ref(&register));
        if access.element.size() == 2 {
            let half = self.register(Class::Half);
            if guard.is_some() {
                line!(self, "mov.b16 {half}, 0;");
            }
            line!(self, "{guarded}ld.global.b16 {half}, [{address}+{offset}];");
            line!(self, "cvt.u32.u16 {register}, {half};");
        } else {
            line!(self, "{guarded}ld.global.b32 {register}, [{address}+{offset}];");
        }
        self.widened(access.element, &[register], 0)
    }

    /// Returns the predicate that the lane holds a choice of a top-k.
    pub(super) fn is_choice(&mut self) -> String {
        let (thread, short) = (self.space.thread.clone(), self.nest.short);
        self.compare("lt", &thread, short)
    }

    /// An element in f32.
    fn widened(&mut self, element: ElementType, packed: &[String], lane: usize) -> String {
        let word = packed[lane * element.size() / 4].clone();
        match (self.hidden.clone(), element) {
            (Some(hidden), ElementType::Bf16) => {
                let bits = self.word("prmt.b32", &[&word, "0", &hidden.halves[lane % 2]]);
                self.number_of(&bits)
            }
            (Some(hidden), _) => {
                let word = self.word("xor.b32", &[&word, &hidden.zero]);
                self.converted(element, &word, lane)
            }
            (None, _) => self.converted(element, &word, lane),
        }
    }

    fn number_of(&mut self, bits: &str) -> String {
        let number = self.register(Class::Float);
        line!(self, "mov.b32 {number}, {bits};");
        number
    }

    /// The element that a word holds, or the lower or the upper half of it.
    fn converted(&mut self, element: ElementType, word: &str, lane: usize) -> String {
        let is_low = lane.is_multiple_of(2);
        match element {
            ElementType::F32 => self.number_of(word),
            ElementType::U32 => {
                let number = self.register(Class::Float);
                line!(self, "cvt.rn.f32.u32 {number}, {word};");
                number
            }
            ElementType::Bf16 => {
                let bits = match is_low {
                    true => self.word("shl.b32", &[word, "16"]),
                    false => self.word("and.b32", &[word, "0xffff0000"]),
                };
                self.number_of(&bits)
            }
            ElementType::F16 => {
                let number = self.register(Class::Float);
                let (low, high) = (self.register(Class::Half), self.register(Class::Half));
                line!(self, "mov.b32 {{{low}, {high}}}, {word};");
                let half = if is_low { low } else { high };
                line!(self, "cvt.f32.f16 {number}, {half};");
                number
            }
        }
    }

    /// Writes a chunk of a value.
    pub(super) fn store(&mut self, access: &Access, chunk: usize) {
        if access.place == Place::Main || self.schedule.is_flat() {
            let is_one = access.strides.last() == Some(&0);
            let lanes = if is_one { 1 } else { self.schedule.vector };
            let numbers: Vec<String> =
                (0..lanes).map(|lane| self.element(access.value, At { chunk, lane })).collect();
            let packed = self.narrowed(access.element, &numbers);
            let guard = self.guard(chunk);
            let has_row = self.space.has_row.clone().filter(|_| !self.schedule.is_flat());
            let mut guard = self.both(guard, has_row);
            if is_one && self.nest.length > 1 {
                // A number of a row, which the thread of its first element writes.
                let column = self.column(chunk);
                let is_first = Some(self.compare("eq", &column, 0));
                guard = self.both(guard, is_first);
            }
            let address = self.base(access, Base::Iteration);
            let offset = chunk * self.step(&access.strides) * access.element.size();
            let space = format!("global{}", self.hint(access, true));
            return self.stores(&space, &address, offset, access.element.size() * lanes, &packed, guard);
        }
        let number = self.element(access.value, FIRST);
        let packed = self.narrowed(access.element, &[number]);
        let (own, base) = match access.place {
            Place::Short => (self.is_choice(), Base::Thread),
            _ => {
                // One thread of the row; the column is 0 in one of the blocks of a cluster.
                let column = self.space.column.clone();
                (self.compare("eq", &column, 0), Base::Row)
            }
        };
        let has_row = self.space.has_row.clone();
        let guard = self.both(Some(own), has_row).unwrap_or_default();
        let address = self.base(access, base);
        if access.element.size() == 2 {
            let half = self.register(Class::Half);
            line!(self, "cvt.u16.u32 {half}, {};", packed[0]);
            line!(self, "@{guard} st.global.b16 [{address}], {half};");
        } else {
            line!(self, "@{guard} st.global.b32 [{address}], {};", packed[0]);
        }
    }

    /// Numbers as they are in memory, rounded to nearest.
    fn narrowed(&mut self, element: ElementType, numbers: &[String]) -> Vec<String> {
        let kind = match element {
            ElementType::F32 => return self.moved("mov.b32", numbers),
            ElementType::U32 => return self.moved("cvt.rzi.u32.f32", numbers),
            ElementType::Bf16 => "bf16",
            ElementType::F16 => "f16",
        };
        let mut packed = vec![];
        for pair in numbers.chunks(2) {
            let word = self.register(Class::Word);
            if let [low, high] = pair {
                line!(self, "cvt.rn.{kind}x2.f32 {word}, {high}, {low};");
            } else {
                let half = self.register(Class::Half);
                line!(self, "cvt.rn.{kind}.f32 {half}, {};", pair[0]);
                line!(self, "cvt.u32.u16 {word}, {half};");
            }
            packed.push(word);
        }
        packed
    }

    pub(super) fn moved(&mut self, instruction: &str, numbers: &[String]) -> Vec<String> {
        numbers.iter().map(|number| self.word(instruction, &[number])).collect()
    }

    /// An element of a row that is moved around its end.
    pub(super) fn rolled(&mut self, value: Value, x: Value, by: usize, at: At) -> String {
        let nest = self.nest;
        let access = nest.reads.iter().find(|read| read.value == x).expect("what is rolled is read");
        debug_assert!(matches!(self.graph.nodes[value.0].op, Op::Roll(..)));
        let chunk = if self.step(&access.strides) == 0 { 0 } else { at.chunk };
        let packed = match self.packed.get(&(value, chunk)) {
            Some(known) => known.clone(),
            None => {
                let column = self.column(at.chunk);
                let moved = self.word("add.u32", &[&column, &by.to_string()]);
                let is_past = self.compare("ge", &moved, nest.length);
                let around = self.word("sub.u32", &[&moved, &nest.length.to_string()]);
                let place = self.word("selp.u32", &[&around, &moved, &is_past]);
                let row = self.base(access, Base::Row);
                let size = access.element.size();
                let address = self.further(row, &place, size);
                let is_flat = self.schedule.is_flat() && !nest.outer.is_empty();
                let offset = if is_flat { chunk * self.step(&access.strides) * size } else { 0 };
                // Its neighbours read the same elements: caches keep them.
                let packed = self.loads("global", &address, offset, access, chunk);
                self.packed.insert((value, chunk), packed.clone());
                packed
            }
        };
        self.widened(access.element, &packed, at.lane)
    }
}

/// A list of registers for one access, and its width.
fn vector(registers: &[String]) -> (&'static str, String) {
    match registers {
        [one] => ("", one.clone()),
        [_, _] => (".v2", format!("{{{}}}", registers.join(", "))),
        _ => (".v4", format!("{{{}}}", registers.join(", "))),
    }
}
