//! Encrypted connections, and the answer to clients that speak plain HTTP.

use apex_tls::{FIRST_BYTE, Server, ServerStream};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;

/// The answer to clients that speak plain HTTP.
const CLEAR: &str = "this address speaks https: write https:// in place of http://\n";

/// Encrypts a connection; `None` where that fails, which is its client's affair.
pub async fn accept(tls: &Server, stream: TcpStream) -> Option<ServerStream> {
    let mut first = [0];
    if stream.peek(&mut first).await.ok()? == 1 && first != [FIRST_BYTE] {
        let _ = refuse(stream).await;
        return None;
    }
    tls.accept(stream).await.ok()
}

/// Answers in the clear, with a status after which no message is given up. What the client still
/// sends is read, so that the answer is not lost with it; the connection's time is bounded.
async fn refuse(mut stream: TcpStream) -> io::Result<()> {
    let answer = format!(
        "HTTP/1.1 426 Upgrade Required\r\nUpgrade: TLS/1.2\r\nConnection: Upgrade, close\r\n\
         Content-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\r\n{CLEAR}",
        CLEAR.len()
    );
    stream.writable().await?;
    // (It is shorter than what a new connection takes at once.)
    stream.try_write(answer.as_bytes())?;
    poll_fn(|context| Pin::new(&mut stream).poll_shutdown(context)).await?;
    let mut rest = [0; 4096];
    loop {
        stream.readable().await?;
        match stream.try_read(&mut rest) {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
    }
}
