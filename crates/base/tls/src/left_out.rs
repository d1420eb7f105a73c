//! The replacement of TLS in a build without it: types that have no value.

use crate::Error;
use std::convert::Infallible;
use std::io;
use tokio::net::TcpStream;

/// An encrypted connection; there is none.
pub type ServerStream = TcpStream;
/// See [`ServerStream`].
pub type ClientStream = TcpStream;

/// A server's certificate and key; there are none.
#[derive(Clone, Debug)]
pub struct Server(Infallible);

/// Whose certificates are trusted; nobody's.
#[derive(Clone, Debug)]
pub struct Client(Infallible);

impl Server {
    /// Says that TLS was left out.
    ///
    /// # Errors
    /// Always.
    pub fn new(_certificates: &[u8], _key: &[u8]) -> Result<Self, Error> {
        Err(Error::LeftOut)
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub async fn accept(&self, _stream: TcpStream) -> io::Result<ServerStream> {
        match self.0 {}
    }
}

impl Client {
    /// Says that TLS was left out.
    ///
    /// # Errors
    /// Always.
    pub fn new(_trusted: Option<&[u8]>) -> Result<Self, Error> {
        Err(Error::LeftOut)
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub async fn connect(&self, _host: &str, _stream: TcpStream) -> io::Result<ClientStream> {
        match self.0 {}
    }
}
