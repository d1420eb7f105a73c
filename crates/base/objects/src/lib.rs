//! Objects in an S3-compatible store.
//!
//! A [`Store`] is a part of a bucket, `s3://BUCKET/PREFIX`, on a server that speaks Amazon's S3:
//! Amazon's own, MinIO, Ceph, SeaweedFS, Google's and others. Objects are put, read, listed and
//! removed by name.
//!
//! Invariants:
//!
//! 1. **Each request is signed with its body** (AWS Signature Version 4), so that a store that
//!    checks signatures takes no other bytes than those that were meant.
//! 2. **Everything has a bound**: attempts and their times, the bytes of an answer, the pages of a
//!    listing.
//! 3. **Secrets stay secret.** The secret key is never shown, and of what a store answers to a
//!    request that it refuses, only the code is, if it looks like one.
//! 4. Buckets stand in the path (`https://HOST/BUCKET/NAME`), which all servers understand.

mod listing;
mod sign;
mod store;

pub use sign::Keys;
pub use store::{Failure, Place, Server, Store};
