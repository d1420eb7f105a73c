//! Arrays, and the texture and surface objects that access them.

pub mod array;
pub mod texture_object;
