//! The driver's functions, one module for each part of the driver API's reference.
//!
//! Functions here check and translate arguments, and leave the work to the other modules of the
//! crate. [`crate::entry`] has their common code and their contract.

use crate::entry::Entry;

mod array;
mod context;
mod copy;
mod device;
mod driver;
mod event;
mod export_tables;
mod graph;
mod integrity;
mod ipc;
mod kernel;
mod library;
mod link;
mod log;
mod memory;
mod module;
mod pool;
mod stream;
mod tensor_map;
mod texture;
mod virtual_memory;

/// Everything that is implemented.
pub(crate) const ALL: &[&[Entry]] = &[
    array::ENTRIES,
    context::ENTRIES,
    copy::ENTRIES,
    device::ENTRIES,
    driver::ENTRIES,
    event::ENTRIES,
    graph::ENTRIES,
    graph::edges::ENTRIES,
    graph::exec::ENTRIES,
    graph::nodes::ENTRIES,
    graph::user_object::ENTRIES,
    ipc::ENTRIES,
    kernel::ENTRIES,
    library::ENTRIES,
    link::ENTRIES,
    log::ENTRIES,
    memory::ENTRIES,
    module::ENTRIES,
    pool::ENTRIES,
    stream::ENTRIES,
    tensor_map::ENTRIES,
    texture::ENTRIES,
    virtual_memory::ENTRIES,
];
