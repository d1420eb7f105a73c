//! Translates a nest and a schedule into PTX.
//!
//! The text is straight-line code over virtual registers, unrolled over the elements of a thread;
//! ptxas allocates registers. [`Emitter::element`] is the heart: it gives the register that holds
//! one element of a value, and emits what computes it where that has not been done. What a later
//! pass needs again stays in its register; only widened copies of 16-bit elements are forgotten
//! after each pass, and made again from the packed ones, to halve what is held; with column sums
//! most of what is computed is forgotten too ([`pressure`](super::pressure)), and ptxas is kept
//! from finding the same computation in two passes, for it would hold the result in between. In a
//! looped schedule nothing of the row survives a pass, and elements are read again.
//!
//! | module | what it emits |
//! | --- | --- |
//! | `layout` | the space: rows, coordinates, addresses, guards |
//! | `memory` | loads and stores, packed and widened |
//! | `math` | functions of numbers |
//! | `reduce` | reductions over threads, warps, blocks of a cluster; histograms |
//! | `columns` | sums over rows, and rows that are read ahead of their computation |
//! | `top` | the largest elements of a row |
//!
//! Generated code is correct for any contents of memory: it reads and writes only what accesses
//! say, and histograms ignore indices outside of their bins.

mod columns;
mod layout;
mod math;
mod memory;
mod reduce;
mod top;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;

use super::graph::{ElementType, Graph, Op, Reduction, Value};
use super::nest::{Access, Memory, Nest, Place};
use super::schedule::{Held, Schedule, Shape};

/// Appends a line of PTX.
macro_rules! line {
    ($emitter:expr, $($format:tt)*) => {
        { writeln!($emitter.body, "\t{}", format_args!($($format)*)).expect("a string takes everything"); }
    };
}
use line;

/// Registers' first letters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Class {
    Half,
    Word,
    Long,
    Float,
    Predicate,
}

/// One element of what a thread computes: a chunk, and a place in its vector.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct At {
    chunk: usize,
    lane: usize,
}

const FIRST: At = At { chunk: 0, lane: 0 };

pub struct Emitter<'a> {
    graph: &'a Graph,
    nest: &'a Nest,
    schedule: &'a Schedule,
    body: String,
    counts: BTreeMap<Class, usize>,
    /// Registers of elements.
    known: HashMap<(Value, At), String>,
    /// The values that stay known after a pass; all if `None`.
    kept: Option<BTreeSet<Value>>,
    /// The position in shared memory of a zero that ptxas does not recognise as one, and the values
    /// made of it in this pass.
    zero: Option<usize>,
    hidden: Option<columns::Hidden>,
    constants: HashMap<u32, String>,
    /// Elements as they are in memory.
    packed: HashMap<(Value, usize), Vec<String>>,
    /// Addresses of accesses, for the row that is computed.
    bases: HashMap<(Memory, layout::Base), String>,
    /// Guards of chunks.
    guards: HashMap<usize, Option<String>>,
    space: layout::Space,
    /// Choices of top-k: values and indices, by what they choose from.
    tops: HashMap<Value, [String; 2]>,
    accumulators: HashMap<Value, String>,
    /// Column sums of a thread.
    sums: HashMap<(Value, At), String>,
    /// The next row as it is in memory.
    next: BTreeMap<(Value, usize), Vec<String>>,
    /// The offset of the partial sums of a block's rows in shared memory.
    slots: usize,
    /// Reads that the first pass keeps in shared memory, and where.
    staged: BTreeMap<Value, usize>,
    is_staging: bool,
    shared_bytes: usize,
    /// The next free place for the results of the warps' reductions.
    partials: usize,
    first_partial: usize,
    /// Barriers that a row passes.
    barriers: usize,
    /// The offset of the histograms' counts in shared memory.
    histograms: BTreeMap<Value, usize>,
    labels: usize,
}

/// The generated code.
#[derive(Clone, Debug)]
pub struct Code {
    pub ptx: String,
    /// Dynamic shared memory, in bytes.
    pub shared: usize,
}

/// The kernel called `name`.
pub fn emit(graph: &Graph, nest: &Nest, schedule: &Schedule, name: &str) -> Code {
    let mut emitter = Emitter {
        graph,
        nest,
        schedule,
        body: String::new(),
        counts: BTreeMap::new(),
        known: HashMap::new(),
        kept: nest.has_column_sums().then(|| nest.kept(graph)),
        zero: None,
        hidden: None,
        constants: HashMap::new(),
        packed: HashMap::new(),
        bases: HashMap::new(),
        guards: HashMap::new(),
        space: layout::Space::default(),
        tops: HashMap::new(),
        accumulators: HashMap::new(),
        sums: HashMap::new(),
        next: BTreeMap::new(),
        slots: 0,
        staged: BTreeMap::new(),
        is_staging: false,
        shared_bytes: 0,
        partials: 0,
        first_partial: 0,
        barriers: 0,
        histograms: BTreeMap::new(),
        labels: 0,
    };
    emitter.reserve_shared();
    emitter.kernel();
    Code { ptx: emitter.text(name), shared: emitter.shared_bytes }
}

impl Emitter<'_> {
    fn text(&self, name: &str) -> String {
        let Schedule { cluster, .. } = *self.schedule;
        let target = if cluster > 1 { "sm_90" } else { "sm_80" };
        let mut text = format!(".version 7.8\n.target {target}\n.address_size 64\n\n");
        if self.shared_bytes > 0 {
            text += ".extern .shared .align 16 .b8 scratch[];\n\n";
        }
        let parameters = (0..self.nest.reads.len() + self.nest.writes.len())
            .map(|place| format!("\t.param .u64 p{place}"))
            .collect::<Vec<_>>();
        text += &format!(".visible .entry {name}(\n{}\n)\n", parameters.join(",\n"));
        text += &format!(".maxntid {}, 1, 1\n", self.schedule.block());
        if self.schedule.resident > 0 {
            text += &format!(".minnctapersm {}\n", self.schedule.resident);
        }
        if cluster > 1 {
            text += &format!(".explicitcluster\n.reqnctapercluster {cluster}, 1, 1\n");
        }
        text += "{\n";
        for (class, count) in &self.counts {
            let (kind, letter) = match class {
                Class::Half => ("b16", 'h'),
                Class::Word => ("b32", 'r'),
                Class::Long => ("b64", 'd'),
                Class::Float => ("f32", 'f'),
                Class::Predicate => ("pred", 'p'),
            };
            text += &format!("\t.reg .{kind} %{letter}<{count}>;\n");
        }
        text + &self.body + "}\n"
    }

    fn register(&mut self, class: Class) -> String {
        let count = self.counts.entry(class).or_default();
        *count += 1;
        let letter = match class {
            Class::Half => 'h',
            Class::Word => 'r',
            Class::Long => 'd',
            Class::Float => 'f',
            Class::Predicate => 'p',
        };
        format!("%{letter}{}", *count - 1)
    }

    fn label(&mut self, what: &str) -> String {
        self.labels += 1;
        format!("{what}_{}", self.labels)
    }

    /// A register with this number.
    fn constant(&mut self, number: f64) -> String {
        let bits = (number as f32).to_bits();
        if let Some(known) = self.constants.get(&bits) {
            return known.clone();
        }
        let register = self.register(Class::Float);
        line!(self, "mov.f32 {register}, 0f{bits:08X};");
        self.constants.insert(bits, register.clone());
        register
    }

    /// All numbers that nodes name, before any branch.
    fn constants(&mut self) {
        for value in &self.nest.nodes {
            for operand in self.graph.nodes[value.0].op.operands() {
                if let Op::Constant(number) = self.graph.nodes[operand.0].op {
                    self.constant(number);
                }
            }
        }
    }

    fn kernel(&mut self) {
        self.enter();
        self.enter_cluster();
        self.constants();
        self.clear_histograms();
        self.hide_zero();
        let again = match self.schedule.shape {
            Shape::Flat => {
                self.flat_space();
                None
            }
            Shape::Rows => {
                if self.schedule.hoists() {
                    self.hoist();
                }
                self.begin_column_sums();
                Some(self.row_space())
            }
        };
        for pass in 0..self.nest.pass_count() {
            self.pass(pass);
        }
        if let Some(again) = again {
            self.next_row(&again);
        }
        self.flush_histograms();
        self.leave_column_sums();
        line!(self, "ret;");
    }

    /// Reads what all rows share before the first one.
    fn hoist(&mut self) {
        self.tid_space();
        for read in self.nest.reads.iter().filter(|read| read.is_invariant() && read.place == Place::Main) {
            for chunk in 0..self.schedule.chunks {
                self.load(read, chunk);
            }
        }
    }

    fn pass(&mut self, pass: usize) {
        let (graph, nest) = (self.graph, self.nest);
        let op = |value: Value| &graph.nodes[value.0].op;
        if self.schedule.shape == Shape::Rows {
            self.row_values(pass);
        }
        self.hidden = self.load_hidden(pass);
        let reductions: Vec<Value> = nest
            .nodes
            .iter()
            .copied()
            .filter(|value| matches!(op(*value), Op::Reduce(..)) && nest.passes[value] == pass + 1)
            .collect();
        for &value in &reductions {
            self.begin_reduction(value);
        }
        if nest.has_main_work(graph, pass) {
            let chunks = self.schedule.chunks;
            let again = (self.schedule.held != Held::Registers).then(|| self.open_loop(pass));
            for chunk in 0..chunks {
                self.chunk(pass, chunk, &reductions);
            }
            if let Some(again) = again {
                self.close_loop(&again);
            }
        }
        self.finish_reductions(&reductions);
        for &value in &nest.nodes {
            if let Op::TopValues(x, _) | Op::TopIndices(x, _) = *op(value)
                && nest.passes[&value] == pass + 1
            {
                self.top(x);
            }
        }
        self.narrow_work(pass);
        self.forget_widened();
    }

    /// The code of a pass for one chunk of the row.
    fn chunk(&mut self, pass: usize, chunk: usize, reductions: &[Value]) {
        let nest = self.nest;
        for &value in reductions {
            self.accumulate(value, chunk);
        }
        for write in nest.writes.iter() {
            let in_chunk = match self.schedule.shape {
                Shape::Flat => true,
                Shape::Rows => write.place == Place::Main,
            };
            if in_chunk && nest.passes[&write.value] == pass && write.place != Place::Whole {
                self.store(write, chunk);
            }
        }
        for (value, of) in nest.histograms(self.graph) {
            if nest.place_of(of) == Place::Main && nest.passes[&value] == pass {
                self.count(value, of, chunk);
            }
        }
        for (value, of) in nest.column_sums(self.graph) {
            if nest.passes[&value] == pass {
                self.add_to_columns(value, of, chunk);
            }
        }
    }

    /// Stores and counts of numbers of the row and of choices.
    fn narrow_work(&mut self, pass: usize) {
        if self.schedule.shape == Shape::Flat {
            return;
        }
        let nest = self.nest;
        for write in &nest.writes {
            let is_narrow = matches!(write.place, Place::Row | Place::Short);
            if is_narrow && nest.passes[&write.value] == pass {
                self.store(write, 0);
            }
        }
        for (value, of) in nest.histograms(self.graph) {
            if nest.place_of(of) != Place::Main && nest.passes[&value] == pass {
                self.count(value, of, 0);
            }
        }
    }

    /// Numbers of the row that are known in this pass, before any loop over it.
    fn row_values(&mut self, pass: usize) {
        let nest = self.nest;
        if pass == 0 {
            for read in nest.reads.iter().filter(|read| read.place == Place::Row) {
                self.element(read.value, FIRST);
            }
        }
        for &value in &nest.nodes {
            if nest.places[&value] == Place::Row && nest.passes[&value] == pass {
                self.element(value, FIRST);
            }
        }
    }

    /// The register of an element of a value, computed now if it is not known.
    fn element(&mut self, value: Value, at: At) -> String {
        let at = self.canonical(value, at);
        if let Some(known) = self.known.get(&(value, at)) {
            return known.clone();
        }
        let register = self.compute(value, at);
        self.known.insert((value, at), register.clone());
        register
    }

    /// Numbers of a row have one register for all elements.
    fn canonical(&self, value: Value, at: At) -> At {
        let is_row = self.nest.place_of_operand(value) == Place::Row;
        match self.schedule.shape {
            Shape::Flat if is_row => At { lane: 0, ..at },
            Shape::Rows if is_row => FIRST,
            _ => at,
        }
    }

    fn compute(&mut self, value: Value, at: At) -> String {
        let nest = self.nest;
        if let Some(read) = nest.reads.iter().find(|read| read.value == value) {
            return self.read(read, at);
        }
        match self.graph.nodes[value.0].op {
            Op::Input => unreachable!("inputs are reads"),
            Op::Constant(number) => self.constant(number),
            Op::Index { .. } => self.index(value, at),
            Op::Unary(function, x) => {
                let x = self.element(x, at);
                self.unary(function, &x)
            }
            Op::Binary(function, x, y) => {
                let (x, y) = (self.element(x, at), self.element(y, at));
                self.binary(function, &x, &y)
            }
            Op::Select(condition, yes, no) => {
                let condition = self.element(condition, at);
                let (yes, no) = (self.element(yes, at), self.element(no, at));
                self.select(&condition, &yes, &no)
            }
            Op::Roll(x, by) => self.rolled(value, x, by, at),
            Op::Reduce(..) => unreachable!("a reduction is known after its pass"),
            Op::TopValues(x, _) => self.tops[&x][0].clone(),
            Op::TopIndices(x, _) => self.tops[&x][1].clone(),
            Op::Histogram(..) | Op::ColumnSum(..) => {
                unreachable!("what is complete after all rows is not read by its own kernel")
            }
        }
    }

    /// Forgets the widened copies of what is packed, and what is to be computed again.
    fn forget_widened(&mut self) {
        let nest = self.nest;
        if let Some(kept) = &self.kept {
            let is_made_again =
                |value: &Value| nest.places.get(value) == Some(&Place::Main) && !kept.contains(value);
            self.known.retain(|(value, _), _| !is_made_again(value));
        }
        let is_packed = |value: &Value| {
            nest.reads
                .iter()
                .any(|read| read.value == *value && read.place == Place::Main && read.element.size() == 2)
        };
        self.known.retain(|(value, _), _| !is_packed(value));
    }
}

impl Nest {
    /// The location of the elements of any value or operand of the nest.
    fn place_of_operand(&self, value: Value) -> Place {
        if let Some(strides) = self.indices.get(&value) {
            return if strides[strides.len() - 1] == 0 { Place::Row } else { Place::Main };
        }
        self.place_of(value)
    }

    fn place_of(&self, value: Value) -> Place {
        let read = || self.reads.iter().find(|read| read.value == value).map(|read| read.place);
        self.places.get(&value).copied().or_else(read).unwrap_or(Place::Row)
    }

    /// Histograms, and what they count.
    fn histograms(&self, graph: &Graph) -> Vec<(Value, Value)> {
        let of = |&value: &Value| match graph.nodes[value.0].op {
            Op::Histogram(x, _) => Some((value, x)),
            _ => None,
        };
        self.nodes.iter().filter_map(of).collect()
    }

    /// Whether a pass goes over the row.
    fn has_main_work(&self, graph: &Graph, pass: usize) -> bool {
        !self.main_work(graph, pass).is_empty()
    }

    /// The values of the row whose elements a pass needs to begin with.
    pub fn main_work(&self, graph: &Graph, pass: usize) -> BTreeSet<Value> {
        let mut work = BTreeSet::new();
        let is_flat = self.is_flat(graph);
        let spread = |value| self.place_of_operand(value) == Place::Main || self.length == 1;
        for write in &self.writes {
            if (write.place == Place::Main || is_flat) && self.passes[&write.value] == pass {
                work.insert(write.value);
            }
        }
        for &value in &self.nodes {
            match graph.nodes[value.0].op {
                Op::Reduce(_, x) if spread(x) && self.passes[&value] == pass + 1 => work.insert(x),
                Op::Histogram(x, _) if spread(x) && self.passes[&value] == pass => work.insert(x),
                Op::ColumnSum(x) if self.passes[&value] == pass => work.insert(x),
                _ => false,
            };
        }
        work
    }
}

/// The element for which a reduction changes nothing.
fn identity(reduction: Reduction) -> f64 {
    match reduction {
        Reduction::Sum => 0.0,
        Reduction::Max => f64::NEG_INFINITY,
        Reduction::Min => f64::INFINITY,
    }
}

/// Returns the number of 4-byte registers that hold this number of elements.
fn words(element: ElementType, count: usize) -> usize {
    (element.size() * count).div_ceil(4)
}

/// Whether an access has its own elements in each row, so that caching them gains nothing.
fn streams(access: &Access) -> bool {
    !access.is_invariant() || access.strides.len() == 1
}
