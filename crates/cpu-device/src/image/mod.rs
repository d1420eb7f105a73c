//! What textures and surfaces read and write: arrays, and the objects that name them.

pub mod array;
pub mod texture_object;
