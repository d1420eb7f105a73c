//! User objects: objects of a program that graphs keep alive.

use crate::entry::{entries, opaque, write};
use crate::error::{Error, ensure};
use crate::graph::Graph;
use crate::graph::user_object::{HeldObject, UserObject};
use cuda_abi::types::*;
use std::ffi::c_void;

entries! {
    /// Makes an object that graphs can keep alive.
    fn cuUserObjectCreate(
        object: *mut CUuserObject,
        data: *mut c_void,
        destructor: CUhostFn,
        references: u32,
        flags: u32,
    ) {
        // The one flag has to be given: nobody can wait for the destructor.
        ensure(!object.is_null() && flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC, CUDA_ERROR_INVALID_VALUE)?;
        let destructor = destructor.ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
        write(object, opaque(UserObject::create(destructor, data, references)?))
    }

    /// Adds references of the program's to an object.
    fn cuUserObjectRetain(object: CUuserObject, count: u32) {
        UserObject::resolve(object)?.retain(count)
    }

    /// Takes references of the program's back.
    fn cuUserObjectRelease(object: CUuserObject, count: u32) {
        UserObject::resolve(object)?.release(count)
    }

    /// Has a graph hold references to an object: new ones, or the program's.
    fn cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: u32, flags: u32) {
        let (graph, object) = (Graph::resolve(graph)?, UserObject::resolve(object)?);
        ensure(flags & !CU_GRAPH_USER_OBJECT_MOVE == 0 && count > 0, CUDA_ERROR_INVALID_VALUE)?;
        if flags & CU_GRAPH_USER_OBJECT_MOVE == 0 {
            object.retain(count)?;
        }
        graph.hold(HeldObject::new(object, count));
        Ok(())
    }

    /// Takes back references that a graph holds.
    fn cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: u32) {
        ensure(count > 0, CUDA_ERROR_INVALID_VALUE)?;
        Graph::resolve(graph)?.release(object as u64, count)
    }
}
