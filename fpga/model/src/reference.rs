//! Attention in 64-bit floating point, and how far a result is from it.

/// Queries, keys and values of one head as real numbers: row by row.
#[derive(Clone, Debug)]
pub struct Head {
    /// Rows of queries.
    pub queries: Vec<Vec<f64>>,
    /// Rows of keys.
    pub keys: Vec<Vec<f64>>,
    /// Rows of values.
    pub values: Vec<Vec<f64>>,
    /// Whether query i sees only the keys up to i.
    pub causal: bool,
}

impl Head {
    /// softmax(Q K^T / sqrt(d)) V.
    pub fn attention(&self) -> Vec<Vec<f64>> {
        let scale = 1.0 / (self.dimension() as f64).sqrt();
        (0..self.queries.len()).map(|row| self.row(row, scale)).collect()
    }

    /// Elements of a row.
    pub fn dimension(&self) -> usize {
        self.queries.first().map_or(0, Vec::len)
    }

    fn row(&self, row: usize, scale: f64) -> Vec<f64> {
        let keys = if self.causal { row + 1 } else { self.keys.len() };
        let dot = |key: &Vec<f64>| self.queries[row].iter().zip(key).map(|(a, b)| a * b).sum::<f64>();
        let scores: Vec<f64> = self.keys[..keys].iter().map(|key| dot(key) * scale).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let total: f64 = weights.iter().sum();
        (0..self.dimension())
            .map(|d| weights.iter().zip(&self.values).map(|(w, value)| w * value[d]).sum::<f64>() / total)
            .collect()
    }
}

/// Distances of a result from the exact one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    /// Root of the mean square of the differences, over that of the exact values.
    pub relative: f64,
    /// The largest difference, over the root of the mean square of the exact values.
    pub largest: f64,
}

/// How far `result` is from `exact`.
pub fn distance(result: &[Vec<f64>], exact: &[Vec<f64>]) -> Distance {
    let pairs = || result.iter().flatten().zip(exact.iter().flatten());
    let squares: f64 = pairs().map(|(a, b)| (a - b).powi(2)).sum();
    let size = exact.iter().flatten().map(|b| b * b).sum::<f64>();
    let largest = pairs().map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let count = exact.iter().map(Vec::len).sum::<usize>() as f64;
    Distance { relative: (squares / size).sqrt(), largest: largest / (size / count).sqrt() }
}
