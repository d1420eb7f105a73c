//! Inputs of the testbenches: random ones, and those at which such designs break.

use crate::Tile;
use crate::attention::{Block, Job, Scale};
use apex_random::Random;

/// A job and what it is for.
pub struct Case {
    /// A few words.
    pub name: &'static str,
    /// The job.
    pub job: Job,
}

/// Draws jobs for one tile.
struct Draw {
    tile: Tile,
    random: Random,
}

impl Draw {
    fn rows(&mut self) -> Vec<Vec<i8>> {
        let Tile { size, dimension } = self.tile;
        (0..size).map(|_| self.random.bytes(dimension).into_iter().map(|byte| byte as i8).collect()).collect()
    }

    fn block(&mut self) -> Block {
        Block { keys: self.rows(), values: self.rows(), present: vec![true; self.tile.size] }
    }

    /// Random numbers, and a scale with which weights neither vanish nor are all alike.
    fn job(&mut self, blocks: usize) -> Job {
        let scale =
            Scale { mult: 32768 + self.random.below(32768) as u16, right: 18 + self.random.below(4) as u32 };
        Job {
            queries: self.rows(),
            blocks: (0..blocks).map(|_| self.block()).collect(),
            causal: false,
            position: 0,
            scale,
        }
    }

    /// A random job with every feature: mask, causal mask, position, scale.
    fn any(&mut self) -> Job {
        let blocks = 1 + self.random.index(6);
        let mut job = self.job(blocks);
        job.scale = Scale { mult: self.random.bits() as u16, right: self.random.below(32) as u32 };
        job.causal = self.random.below(2) == 0;
        let keys = (blocks * self.tile.size) as u64;
        job.position = self.random.below(2 * keys) as i32 - keys as i32 / 2;
        for block in &mut job.blocks {
            let share = self.random.below(4);
            block.present.iter_mut().for_each(|present| *present = self.random.below(4) >= share);
        }
        job
    }
}

fn filled(tile: Tile, value: i8) -> Vec<Vec<i8>> {
    vec![vec![value; tile.dimension]; tile.size]
}

/// Every key of block b has elements `value(b)`, and queries are all 1: scores that the block
/// decides.
fn by_block(draw: &mut Draw, blocks: usize, value: impl Fn(usize) -> i8) -> Job {
    let mut job = draw.job(blocks);
    job.queries = filled(draw.tile, 1);
    for (number, block) in job.blocks.iter_mut().enumerate() {
        block.keys = filled(draw.tile, value(number));
    }
    // A score of `dimension` is two whole units of the base-2 logarithm.
    job.scale = Scale { mult: (2048 / draw.tile.dimension) as u16, right: 0 };
    job
}

/// The extreme cases.
fn extremes(draw: &mut Draw) -> Vec<Case> {
    let tile = draw.tile;
    let mut cases = Vec::new();
    let mut add = |name, job| cases.push(Case { name, job });

    for (name, left, right) in
        [("scores and results as large as they get", -128, -128), ("scores as low as they get", -128, 127)]
    {
        let mut job = draw.job(3);
        job.queries = filled(tile, left);
        for block in &mut job.blocks {
            block.keys = filled(tile, right);
            block.values = filled(tile, -128);
        }
        job.scale = Scale { mult: 65535, right: 0 };
        add(name, job.clone());
        job.scale = Scale { mult: 65535, right: 31 };
        add("the same, with the largest shift", job);
    }
    let mut job = draw.job(2);
    job.scale = Scale { mult: 65535, right: 2 };
    add("logarithms that saturate on both sides", job);
    let mut job = draw.job(3);
    job.scale = Scale { mult: 0, right: 5 };
    add("all weights alike", job);

    let mut job = draw.job(3);
    job.blocks.iter_mut().for_each(|block| block.present = vec![false; tile.size]);
    add("every key masked", job);
    let mut job = draw.job(2);
    (job.causal, job.position) = (true, -1);
    add("rows before the first key: one row sees nothing", job);
    let mut job = draw.job(2);
    (job.causal, job.position) = (true, -(1 << 17));
    add("rows far before the first key: nothing is seen", job);
    let mut job = draw.job(3);
    (job.causal, job.position) = (true, (1 << 17) - 1);
    add("rows far behind the last key: everything is seen", job);
    let mut job = draw.job(3);
    job.blocks[0].present = vec![false; tile.size];
    add("a first block without keys", job);
    let mut job = draw.job(3);
    job.blocks[2].present = vec![false; tile.size];
    add("a last block without keys", job);

    add("maxima that grow with every block", by_block(draw, 5, |number| 4 * number as i8));
    add(
        "maxima that grow once, late, by more than every shift",
        by_block(draw, 5, |number| if number == 4 { 127 } else { -128 }),
    );
    add(
        "maxima that come first: later weights vanish",
        by_block(draw, 4, |number| if number == 0 { 127 } else { -128 }),
    );
    add("weights that shrink block by block", by_block(draw, 6, |number| -(number as i8)));
    let mut job = draw.job(1);
    job.blocks[0].keys[tile.size - 1] = vec![127; tile.dimension];
    job.queries = filled(tile, 127);
    add("the maximum in the last column", job);

    for (name, only) in [("length 1", 0), ("one key, in the last column", tile.size - 1)] {
        let mut job = draw.job(1);
        job.blocks[0].present = (0..tile.size).map(|column| column == only).collect();
        add(name, job);
    }
    let mut job = draw.job(4);
    job.blocks[3].present = (0..tile.size).map(|column| column < 3).collect();
    add("a length that is no multiple of the tile", job);
    for number in 0..3 {
        let mut job = draw.job(number + 1);
        (job.causal, job.position) = (true, (number * tile.size) as i32);
        add("a causal mask, queries and keys alike", job);
    }
    cases
}

/// The extreme cases and `random` more.
pub fn attention(tile: Tile, random: usize, seed: u64) -> Vec<Case> {
    let mut draw = Draw { tile, random: Random::named(seed, "attention") };
    let mut cases = extremes(&mut draw);
    cases.extend((0..random).map(|_| Case { name: "random", job: draw.any() }));
    cases
}

/// A tile of a product: columns of A and rows of B.
pub type Product = [Vec<Vec<i8>>; 2];

/// Tiles of products. The terms vary from 1 to more than the size.
pub fn products(size: usize, random: usize, seed: u64) -> Vec<Product> {
    let mut random_numbers = Random::named(seed, "products");
    let full = |terms: usize, a: i8, b: i8| [vec![vec![a; size]; terms], vec![vec![b; size]; terms]];
    let mut cases = vec![full(300, -128, -128), full(300, -128, 127), full(1, -128, -128), full(1, 127, 127)];
    let lengths = [1, 1, 2, size - 1, size, size + 1, 3 * size];
    for number in 0..lengths.len() + random {
        let terms = lengths.get(number).copied().unwrap_or_else(|| 1 + random_numbers.index(5 * size));
        let mut matrix = || -> Vec<Vec<i8>> {
            let mut row = || random_numbers.bytes(size).into_iter().map(|byte| byte as i8).collect();
            (0..terms).map(|_| row()).collect()
        };
        cases.push([matrix(), matrix()]);
    }
    cases
}
