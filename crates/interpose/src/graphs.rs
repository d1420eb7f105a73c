//! Executable graphs.
/// Graphs.
pub struct Graphs;
impl Graphs {
    /// New.
    pub fn new() -> Graphs {
        Graphs
    }
}
