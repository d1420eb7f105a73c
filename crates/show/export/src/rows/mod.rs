//! The tables of a session: one row for each launch, call, or kernel.
//!
//! Each table names its columns once, with what they mean; a row is an array as long as that list.
//! Rows of launches and calls come process by process, in the order of the process's file: by time
//! within a thread.

pub mod calls;
pub mod kernels;
pub mod launches;

use crate::table::{Cell, Column, Type, column};
use cuda_launch::Dim3;

use Type::Integer;

/// Columns of a launch configuration and of the resources of its function.
const CONFIGURATION: [Column; 13] = [
    column("grid_x", Integer, "blocks"),
    column("grid_y", Integer, "blocks"),
    column("grid_z", Integer, "blocks"),
    column("block_x", Integer, "threads"),
    column("block_y", Integer, "threads"),
    column("block_z", Integer, "threads"),
    column("cluster_x", Integer, "blocks of a cluster; null without clusters"),
    column("cluster_y", Integer, "blocks of a cluster"),
    column("cluster_z", Integer, "blocks of a cluster"),
    column("dynamic_shared_bytes", Integer, "of a block"),
    column("static_shared_bytes", Integer, "of a block"),
    column("local_bytes", Integer, "of a thread"),
    column("registers", Integer, "of a thread"),
];

/// Lists of columns, one after the other; `N` is the sum of their lengths.
const fn joined<const N: usize>(parts: &[&[Column]]) -> [Column; N] {
    let mut all = [CONFIGURATION[0]; N];
    let (mut part, mut at) = (0, 0);
    while part < parts.len() {
        let mut column = 0;
        while column < parts[part].len() {
            all[at] = parts[part][column];
            column += 1;
            at += 1;
        }
        part += 1;
    }
    assert!(at == N);
    all
}

fn axis(extent: Option<Dim3>, axis: usize) -> Cell<'static> {
    extent.map(|extent| extent.to_array()[axis]).into()
}
