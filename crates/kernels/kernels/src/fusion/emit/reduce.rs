//! Reductions: over the elements of a thread, the lanes of a warp, the warps of a block, and the
//! blocks of a cluster.
//!
//! Every thread of the row ends with the result. The warps of a row leave their partial results in
//! shared memory, in each block of the cluster, pass one barrier, and read all of them. Each
//! reduction has its own place there, so that one barrier is enough.
//!
//! Histograms are counted in shared memory, and added to global memory when a block has done all of
//! its rows.

use std::fmt::Write;

use super::super::graph::{Op, Reduction, Value};
use super::super::nest::Place;
use super::super::schedule::Held;
use super::layout::Base;
use super::{At, Class, Emitter, FIRST, identity, line};

/// Partial results that a thread reads itself; of more, each lane reads some.
const FEW_PARTIALS: usize = 16;

impl Emitter<'_> {
    /// Divides shared memory.
    pub(super) fn reserve_shared(&mut self) {
        let nest = self.nest;
        if self.schedule.held == Held::Shared {
            for read in nest.reads.iter().filter(|read| read.place == Place::Main) {
                if nest.is_read_again(self.graph, read.value) {
                    self.staged.insert(read.value, self.shared_bytes);
                    let span = self.schedule.span() * self.schedule.chunks;
                    let columns = nest.length.next_multiple_of(span);
                    self.shared_bytes += (columns * read.element.size()).next_multiple_of(16);
                }
            }
        }
        (self.partials, self.first_partial) = (self.shared_bytes, self.shared_bytes);
        let warps = self.schedule.threads.div_ceil(32) * self.schedule.cluster;
        if warps > 1 {
            let reductions =
                nest.nodes.iter().filter(|value| matches!(self.graph.nodes[value.0].op, Op::Reduce(..)));
            self.shared_bytes += reductions.count() * (4 * warps).next_multiple_of(16);
        }
        for (value, _) in nest.histograms(self.graph) {
            self.histograms.insert(value, self.shared_bytes);
            self.shared_bytes += self.bins(value) * 4;
        }
        if nest.has_column_sums() && nest.pass_count() > 1 {
            self.zero = Some(self.shared_bytes);
            self.shared_bytes += 16;
        }
        if nest.has_column_sums() {
            self.slots = self.shared_bytes.next_multiple_of(16);
            self.shared_bytes = self.slots + self.schedule.slots_bytes();
        }
    }

    fn reduction(&self, value: Value) -> (Reduction, Value) {
        match self.graph.nodes[value.0].op {
            Op::Reduce(reduction, x) => (reduction, x),
            _ => unreachable!("the node is a reduction"),
        }
    }

    fn combine(&mut self, reduction: Reduction, to: &str, x: &str, y: &str) {
        let instruction = match reduction {
            Reduction::Sum => "add.f32",
            Reduction::Max => "max.NaN.f32",
            Reduction::Min => "min.NaN.f32",
        };
        line!(self, "{instruction} {to}, {x}, {y};");
    }

    /// All of them, in pairs.
    fn tree(&mut self, reduction: Reduction, mut numbers: Vec<String>) -> String {
        while numbers.len() > 1 {
            let pairs: Vec<Vec<String>> = numbers.chunks(2).map(<[String]>::to_vec).collect();
            numbers = pairs
                .into_iter()
                .map(|pair| match &pair[..] {
                    [x, y] => {
                        let both = self.register(Class::Float);
                        self.combine(reduction, &both, x, y);
                        both
                    }
                    _ => pair[0].clone(),
                })
                .collect();
        }
        numbers.remove(0)
    }

    /// A register for what a thread has reduced.
    pub(super) fn begin_reduction(&mut self, value: Value) {
        let (reduction, _) = self.reduction(value);
        let (accumulator, first) = (self.register(Class::Float), self.constant(identity(reduction)));
        line!(self, "mov.f32 {accumulator}, {first};");
        self.accumulators.insert(value, accumulator);
    }

    /// Reduces a chunk.
    pub(super) fn accumulate(&mut self, value: Value, chunk: usize) {
        let (reduction, x) = self.reduction(value);
        if self.nest.place_of(x) == Place::Short {
            return;
        }
        let numbers: Vec<String> =
            (0..self.schedule.vector).map(|lane| self.element(x, At { chunk, lane })).collect();
        let mut all = self.tree(reduction, numbers);
        if let Some(guard) = self.guard(chunk) {
            let nothing = self.constant(identity(reduction));
            all = self.selected(&all, &nothing, &guard);
        }
        let accumulator = self.accumulators[&value].clone();
        self.combine(reduction, &accumulator, &accumulator, &all);
    }

    fn selected(&mut self, yes: &str, no: &str, predicate: &str) -> String {
        let register = self.register(Class::Float);
        line!(self, "selp.f32 {register}, {yes}, {no}, {predicate};");
        register
    }

    /// Reduces what threads have, all of these reductions behind one barrier.
    pub(super) fn finish_reductions(&mut self, values: &[Value]) {
        for &value in values {
            let (reduction, x) = self.reduction(value);
            if self.nest.place_of(x) == Place::Short {
                let (number, own) = (self.element(x, FIRST), self.is_choice());
                let nothing = self.constant(identity(reduction));
                let number = self.selected(&number, &nothing, &own);
                self.accumulators.insert(value, number);
            }
            let accumulator = self.accumulators[&value].clone();
            let all = self.shuffled(reduction, accumulator, self.schedule.threads.min(32));
            self.known.insert((value, FIRST), all);
        }
        let warps = self.schedule.threads.div_ceil(32) * self.schedule.cluster;
        if warps == 1 || values.is_empty() {
            return;
        }
        let start = self.partials;
        for &value in values {
            self.leave(value);
        }
        self.barriers += 1;
        if self.schedule.cluster > 1 {
            line!(self, "barrier.cluster.arrive.aligned;");
            line!(self, "barrier.cluster.wait.aligned;");
        } else {
            line!(self, "bar.sync 0;");
        }
        for (place, &value) in values.iter().enumerate() {
            let (reduction, _) = self.reduction(value);
            let all = self.partials(reduction, start + place * (4 * warps).next_multiple_of(16), warps);
            self.known.insert((value, FIRST), all);
        }
    }

    /// Reduces over groups of `lanes` lanes.
    fn shuffled(&mut self, reduction: Reduction, mut number: String, lanes: usize) -> String {
        let mut distance = lanes / 2;
        while distance > 0 {
            let (other, both) = (self.register(Class::Float), self.register(Class::Float));
            line!(self, "shfl.sync.bfly.b32 {other}, {number}, {distance}, 31, 0xffffffff;");
            self.combine(reduction, &both, &number, &other);
            number = both;
            distance /= 2;
        }
        number
    }

    /// Begins to wait until all blocks of the cluster run.
    pub(super) fn enter_cluster(&mut self) {
        if self.schedule.cluster > 1 {
            line!(self, "barrier.cluster.arrive.aligned;");
        }
    }

    /// Leaves the warp's partial result where all threads of the row find it.
    fn leave(&mut self, value: Value) {
        let partial = self.known[&(value, FIRST)].clone();
        let warps = self.schedule.threads.div_ceil(32);
        let thread = self.space.thread.clone();
        let (warp, lane) = (self.word("shr.u32", &[&thread, "5"]), self.word("and.b32", &[&thread, "31"]));
        let base = self.word("mov.u32", &["scratch"]);
        let mut address = self.word("mad.lo.u32", &[&warp, "4", &base]);
        let own = self.partials;
        self.partials += (4 * warps * self.schedule.cluster).next_multiple_of(16);
        if self.schedule.cluster == 1 {
            let leads = self.compare("eq", &lane, 0);
            line!(self, "@{leads} st.shared.f32 [{address}+{own}], {partial};");
            return;
        }
        if self.barriers == 0 && own == self.first_partial {
            line!(self, "barrier.cluster.wait.aligned;");
        }
        // A lane for each block of the cluster.
        let rank = self.special("cluster_ctarank");
        address = self.word("mad.lo.u32", &[&rank, &(4 * warps).to_string(), &address]);
        let leads = self.compare("lt", &lane, self.schedule.cluster);
        let lane = self.word("min.u32", &[&lane, &(self.schedule.cluster - 1).to_string()]);
        let remote = self.word("mapa.shared::cluster.u32", &[&address, &lane]);
        line!(self, "@{leads} st.shared::cluster.f32 [{remote}+{own}], {partial};");
    }

    /// All partial results, reduced by every thread.
    fn partials(&mut self, reduction: Reduction, start: usize, count: usize) -> String {
        let base = self.word("mov.u32", &["scratch"]);
        if count > FEW_PARTIALS {
            let (thread, nothing) = (self.space.thread.clone(), self.constant(identity(reduction)));
            let lane = self.word("and.b32", &[&thread, "31"]);
            let address = self.word("mad.lo.u32", &[&lane, "4", &base]);
            let mut own = vec![];
            for first in (0..count).step_by(32) {
                let number = self.register(Class::Float);
                line!(self, "mov.f32 {number}, {nothing};");
                let has = self.compare("lt", &lane, count - first);
                line!(self, "@{has} ld.shared.f32 {number}, [{address}+{}];", start + 4 * first);
                own.push(number);
            }
            let own = self.tree(reduction, own);
            return self.shuffled(reduction, own, 32);
        }
        let numbers: Vec<String> = (0..count).map(|_| self.register(Class::Float)).collect();
        for (place, number) in numbers.iter().enumerate() {
            line!(self, "ld.shared.f32 {number}, [{base}+{}];", start + 4 * place);
        }
        self.tree(reduction, numbers)
    }

    fn bins(&self, value: Value) -> usize {
        self.graph.shape(value)[0]
    }

    /// Lets every thread of the block visit some of `count` words of shared memory from `start` on,
    /// with the number of each and its address.
    pub(super) fn each_word(
        &mut self,
        start: usize,
        count: usize,
        visit: impl FnOnce(&mut Self, &str, &str),
    ) {
        let word = self.special("tid.x");
        let (done, again) = (self.label("DONE"), self.label("WORD"));
        let beyond = self.compare("ge", &word, count);
        line!(self, "@{beyond} bra {done};");
        line!(self, "{again}:");
        let base = self.word("mov.u32", &["scratch"]);
        let address = self.word("mad.lo.u32", &[&word, "4", &base]);
        let address = self.word("add.u32", &[&address, &start.to_string()]);
        visit(self, &word, &address);
        line!(self, "add.u32 {word}, {word}, {};", self.schedule.block());
        let goes_on = self.compare("lt", &word, count);
        line!(self, "@{goes_on} bra {again};");
        line!(self, "{done}:");
    }

    fn each_bin(&mut self, value: Value, visit: impl FnOnce(&mut Self, &str, &str)) {
        self.each_word(self.histograms[&value], self.bins(value), visit);
    }

    pub(super) fn clear_histograms(&mut self) {
        let histograms: Vec<Value> = self.histograms.keys().copied().collect();
        for &value in &histograms {
            self.each_bin(value, |emitter, _, address| line!(emitter, "st.shared.u32 [{address}], 0;"));
        }
        if !histograms.is_empty() {
            line!(self, "bar.sync 0;");
        }
    }

    /// Counts a chunk, the row's number, or the lane's choice.
    pub(super) fn count(&mut self, value: Value, of: Value, chunk: usize) {
        let place = self.nest.place_of(of);
        let lanes = if place == Place::Main { self.schedule.vector } else { 1 };
        let own = match place {
            Place::Main => self.guard(chunk),
            Place::Short => Some(self.is_choice()),
            _ => {
                let column = self.space.column.clone();
                Some(self.compare("eq", &column, 0))
            }
        };
        let has_row = self.space.has_row.clone();
        let own = self.both(own, has_row);
        for lane in 0..lanes {
            let index = self.element(of, At { chunk, lane });
            let index = self.word("cvt.rzi.u32.f32", &[&index]);
            let is_bin = Some(self.compare("lt", &index, self.bins(value)));
            let counts = self.both(own.clone(), is_bin).unwrap_or_default();
            let base = self.word("mov.u32", &["scratch"]);
            let address = self.word("mad.lo.u32", &[&index, "4", &base]);
            let start = self.histograms[&value];
            line!(self, "@{counts} red.shared.add.u32 [{address}+{start}], 1;");
        }
    }

    pub(super) fn flush_histograms(&mut self) {
        let nest = self.nest;
        if self.histograms.is_empty() {
            return;
        }
        line!(self, "bar.sync 0;");
        for write in nest.writes.iter().filter(|write| write.place == Place::Whole) {
            let global = self.bases[&(write.memory, Base::Tensor)].clone();
            self.each_bin(write.value, |emitter, bin, address| {
                let count = emitter.register(Class::Word);
                line!(emitter, "ld.shared.u32 {count}, [{address}];");
                let global = emitter.further(global, bin, 4);
                line!(emitter, "red.global.add.u32 [{global}], {count};");
            });
        }
    }
}
