//! The values of a row that a thread holds between passes, and the registers that they take.
//!
//! A kernel keeps all that it computes and needs again. One with column sums has no room for that
//! beside the sums and the next row: it computes again what is cheap, from what it read.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::{Binary, Graph, Op, Unary, Value};
use super::nest::{Access, Nest, Place};

/// Registers that the elements of a row take.
pub struct Pressure {
    /// Maximum size of the live values of an element, in bytes.
    bytes: usize,
    /// Size of an element of the next row, in bytes.
    next: usize,
    pub has_sums: bool,
}

impl Pressure {
    pub fn of(graph: &Graph, nest: &Nest) -> Pressure {
        let lives = nest.lives(graph);
        let bytes_of = |value: Value| {
            let read = nest.reads.iter().find(|read| read.value == value);
            read.map_or(4, |read| read.element.size())
        };
        let is_read = |value: Value| nest.reads.iter().any(|read| read.value == value);
        let worst = |is_alive: &dyn Fn(usize, Value, usize, usize) -> bool| {
            let at = |pass: usize| {
                let alive =
                    lives.iter().filter(|&(&value, &(first, last))| is_alive(pass, value, first, last));
                alive.map(|(&value, _)| bytes_of(value)).sum::<usize>()
            };
            (0..nest.pass_count()).map(at).max().unwrap_or(0)
        };
        let sums = nest.column_sums(graph).len();
        if sums == 0 {
            // What a pass reads is read at once; what it computes may be used at once.
            let bytes = worst(&|pass, value, first, last| {
                first <= pass && last >= pass && (is_read(value) || first < pass || last > pass)
            });
            return Pressure { bytes, next: 0, has_sums: false };
        }
        // What all rows share stays for all of them; the rest takes the place of what was read.
        let kept = nest.kept(graph);
        let between = worst(&|pass, value, first, last| {
            let stays = first <= pass && last > pass && (is_read(value) || kept.contains(&value));
            nest.is_invariant(value) || stays
        });
        let read = worst(&|_, value, first, _| nest.is_invariant(value) || is_read(value) && first == 0);
        let ahead = nest.reads.iter().filter(|read| read.is_read_ahead());
        Pressure {
            bytes: between.max(read) + 4 * sums,
            next: ahead.map(|read| read.element.size()).sum(),
            has_sums: true,
        }
    }

    pub fn registers(&self, elements: usize, ahead: bool) -> usize {
        let bytes = self.bytes + if ahead { self.next } else { 0 };
        (bytes * elements).div_ceil(4)
    }
}

impl Access {
    /// Whether each row has its own elements of it.
    pub fn is_read_ahead(&self) -> bool {
        self.place == Place::Main && !self.is_invariant()
    }
}

impl Nest {
    pub fn has_column_sums(&self) -> bool {
        self.places.values().any(|&place| place == Place::Columns)
    }

    fn is_invariant(&self, value: Value) -> bool {
        let is_it = |read: &Access| read.value == value && read.is_invariant() && read.place == Place::Main;
        self.reads.iter().any(is_it)
    }

    /// Returns the values that a kernel with column sums keeps from pass to pass: those that cost
    /// much, and those that are no larger than the tensors that nothing else needs then.
    pub fn kept(&self, graph: &Graph) -> BTreeSet<Value> {
        let mut kept = BTreeSet::new();
        for &value in self.nodes.iter().filter(|value| self.places[value] == Place::Main) {
            if is_costly(&graph.nodes[value.0].op) || self.replaces_reads(graph, value, &kept) {
                kept.insert(value);
            }
        }
        kept
    }

    /// Whether a value takes the place of at least as many bytes that were read for it alone.
    fn replaces_reads(&self, graph: &Graph, value: Value, kept: &BTreeSet<Value>) -> bool {
        let (mut inside, mut read) = (BTreeSet::from([value]), BTreeSet::new());
        let mut waiting = vec![value];
        while let Some(next) = waiting.pop() {
            let operands = graph.nodes[next.0].op.operands();
            for operand in operands.filter(|operand| self.is_spread(*operand) && !kept.contains(operand)) {
                if self.places.contains_key(&operand) {
                    if inside.insert(operand) {
                        waiting.push(operand);
                    }
                } else if !self.is_invariant(operand) {
                    read.insert(operand);
                }
            }
        }
        let is_used_inside = |used: &Value| {
            let users =
                self.nodes.iter().filter(|user| graph.nodes[user.0].op.operands().any(|it| it == *used));
            used == &value || users.clone().all(|user| inside.contains(user))
        };
        let sizes = self.reads.iter().filter(|access| read.contains(&access.value));
        let bytes: usize = sizes.map(|access| access.element.size()).sum();
        bytes >= 4 && read.iter().chain(&inside).all(is_used_inside)
    }

    /// The first and the last pass that uses the elements of each value, with what is kept.
    fn lives(&self, graph: &Graph) -> BTreeMap<Value, (usize, usize)> {
        let kept = self.has_column_sums().then(|| self.kept(graph));
        let is_made_again = |value: &Value| {
            kept.as_ref().is_some_and(|kept| self.places.contains_key(value) && !kept.contains(value))
        };
        let mut lives = BTreeMap::<Value, (usize, usize)>::new();
        for pass in 0..self.pass_count() {
            let mut waiting: Vec<Value> = self.main_work(graph, pass).into_iter().collect();
            let mut seen = BTreeSet::new();
            while let Some(value) = waiting.pop() {
                if !seen.insert(value) {
                    continue;
                }
                let is_known = lives.contains_key(&value);
                lives.entry(value).or_insert((pass, pass)).1 = pass;
                if is_known && !is_made_again(&value) {
                    continue;
                }
                if self.places.contains_key(&value) {
                    waiting.extend(
                        graph.nodes[value.0].op.operands().filter(|&operand| self.is_spread(operand)),
                    );
                }
            }
        }
        lives
    }

    /// Whether a value has elements of its own along the row, in memory or computed.
    fn is_spread(&self, value: Value) -> bool {
        match self.places.get(&value) {
            Some(place) => *place == Place::Main,
            None => self.reads.iter().any(|read| read.value == value && read.place == Place::Main),
        }
    }

    /// Whether a pass needs a tensor that the first pass reads, if nothing else is kept.
    pub fn is_read_again(&self, graph: &Graph, read: Value) -> bool {
        let needs = |pass: usize| {
            let mut waiting: Vec<Value> = self.main_work(graph, pass).into_iter().collect();
            while let Some(value) = waiting.pop() {
                if value == read {
                    return true;
                }
                if self.places.contains_key(&value) {
                    waiting.extend(
                        graph.nodes[value.0].op.operands().filter(|&operand| self.is_spread(operand)),
                    );
                }
            }
            false
        };
        needs(0) && (1..self.pass_count()).any(needs)
    }
}

/// Whether an operation takes many instructions.
fn is_costly(op: &Op) -> bool {
    use Unary::{Exp, Ln, Recip, Rsqrt, Sqrt, Tanh};
    matches!(op, Op::Unary(Exp | Ln | Recip | Rsqrt | Sqrt | Tanh, _) | Op::Binary(Binary::Div, ..))
}
