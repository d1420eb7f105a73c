//! The body of a request that is read as a whole, within a bound.

use crate::response::Response;
use hyper::StatusCode;
use hyper::body::{Body, Bytes, Incoming};
use std::future::poll_fn;
use std::pin::Pin;

/// Reads a body of at most so many bytes.
///
/// # Errors
/// Returns the response to a body that is larger, or that breaks off.
pub async fn read(mut body: Incoming, most: usize) -> Result<Bytes, Box<Response>> {
    let why = format!("a body has at most {most} bytes here");
    let too_large = || Box::new(Response::text(StatusCode::PAYLOAD_TOO_LARGE, why.as_str()));
    if body.size_hint().lower() > most as u64 {
        return Err(too_large());
    }
    let mut read = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let broken = |_| Box::new(Response::text(StatusCode::BAD_REQUEST, "the body broke off"));
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        if read.len() + data.len() > most {
            return Err(too_large());
        }
        read.extend_from_slice(&data);
    }
    Ok(read.into())
}
