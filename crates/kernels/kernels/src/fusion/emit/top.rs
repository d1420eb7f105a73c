//! The largest elements of a row, by one warp.
//!
//! Elements become keys, integers in the order of the numbers; then the warp finds the largest key
//! and the first place that has it, as often as there are choices, and takes it away. Lane j ends
//! with choice j.

use std::fmt::Write;

use super::super::graph::Value;
use super::{At, Class, Emitter, line};

/// Keys of what is not there, or was chosen before; and of NaN. That of −∞ is larger.
const GONE: u32 = 0;
const NAN: u32 = 1;
const SIGN: u32 = 1 << 31;

impl Emitter<'_> {
    /// Chooses among the elements of `x`, unless that was done.
    pub(super) fn top(&mut self, x: Value) {
        if self.tops.contains_key(&x) {
            return;
        }
        let (keys, places) = self.keys(x);
        let lane = self.space.thread.clone();
        let (choice, place) = (self.word("mov.u32", &["0"]), self.word("mov.u32", &["0"]));
        for turn in 0..self.nest.short {
            let mut most = keys[0].clone();
            for key in &keys[1..] {
                most = self.word("max.u32", &[&most, key]);
            }
            let most = self.word("redux.sync.max.u32", &[&most, "0xffffffff"]);
            let mut first = self.word("mov.u32", &["0xffffffff"]);
            for (key, own) in keys.iter().zip(&places).rev() {
                let has = self.compare("eq", key, &most);
                first = self.word("selp.u32", &[own, &first, &has]);
            }
            let first = self.word("redux.sync.min.u32", &[&first, "0xffffffff"]);
            for (key, own) in keys.iter().zip(&places) {
                let chosen = self.compare("eq", own, &first);
                line!(self, "selp.u32 {key}, {GONE}, {key}, {chosen};");
            }
            let mine = self.compare("eq", &lane, turn);
            line!(self, "selp.u32 {choice}, {most}, {choice}, {mine};");
            line!(self, "selp.u32 {place}, {first}, {place}, {mine};");
        }
        let number = self.number(&choice);
        let index = self.register(Class::Float);
        line!(self, "cvt.rn.f32.u32 {index}, {place};");
        self.tops.insert(x, [number, index]);
    }

    /// Keys of the thread's elements, and their places.
    fn keys(&mut self, x: Value) -> (Vec<String>, Vec<String>) {
        let (mut keys, mut places) = (vec![], vec![]);
        for chunk in 0..self.schedule.chunks {
            let column = self.column(chunk);
            let guard = self.guard(chunk);
            for lane in 0..self.schedule.vector {
                let number = self.element(x, At { chunk, lane });
                let bits = self.word("mov.b32", &[&number]);
                let sign = self.word("shr.s32", &[&bits, "31"]);
                let flipped = self.word("or.b32", &[&sign, &SIGN.to_string()]);
                let mut key = self.word("xor.b32", &[&bits, &flipped]);
                let is_nan = self.register(Class::Predicate);
                line!(self, "setp.nan.f32 {is_nan}, {number}, {number};");
                key = self.word("selp.u32", &[&NAN.to_string(), &key, &is_nan]);
                if let Some(guard) = &guard {
                    key = self.word("selp.u32", &[&key, &GONE.to_string(), guard]);
                }
                keys.push(key);
                places.push(self.word("add.u32", &[&column, &lane.to_string()]));
            }
        }
        (keys, places)
    }

    /// The number of a key.
    fn number(&mut self, key: &str) -> String {
        // Keys of numbers that are not negative have the highest bit.
        let sign = self.word("shr.s32", &[key, "31"]);
        let negative = self.word("not.b32", &[&sign]);
        let flipped = self.word("or.b32", &[&negative, &SIGN.to_string()]);
        let bits = self.word("xor.b32", &[key, &flipped]);
        let is_nan = self.compare("eq", key, NAN);
        let bits = self.word("selp.b32", &["0x7fffffff", &bits, &is_nan]);
        let number = self.register(Class::Float);
        line!(self, "mov.b32 {number}, {bits};");
        number
    }
}
