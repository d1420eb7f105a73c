//! TLS by rustls.

use crate::Error;
use crate::trust::{Trust, certificates, provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{CertificateError, ClientConfig, ServerConfig};
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// A server's side of an encrypted connection.
pub type ServerStream = tokio_rustls::server::TlsStream<TcpStream>;
/// A client's side of one.
pub type ClientStream = tokio_rustls::client::TlsStream<TcpStream>;

/// A server's certificate and key.
#[derive(Clone, Debug)]
pub struct Server(Arc<ServerConfig>);

/// Whose certificates are trusted.
#[derive(Clone, Debug)]
pub struct Client(Arc<ClientConfig>);

impl Server {
    /// Takes a certificate, behind it those of the authorities between it and a known one, and its
    /// key, as text (PEM).
    ///
    /// # Errors
    /// If they cannot be read, or are not of each other.
    pub fn new(chain: &[u8], key: &[u8]) -> Result<Self, Error> {
        let chain = certificates(chain).map_err(Error::Certificate)?;
        if chain.is_empty() {
            return Err(Error::Certificate("there is none in the file".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| Error::Key(error.to_string()))?;
        let versions = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let unusable = |error: rustls::Error| Error::Key(error.to_string());
        let config = versions.map_err(unusable)?.with_no_client_auth().with_single_cert(chain, key);
        Ok(Self(Arc::new(config.map_err(unusable)?)))
    }

    /// Encrypts a connection that a client opened.
    ///
    /// # Errors
    /// If the client does not speak TLS, or does not trust the certificate.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<ServerStream> {
        TlsAcceptor::from(Arc::clone(&self.0)).accept(stream).await
    }
}

impl Client {
    /// Trusts the certificates in a text (PEM): those of authorities, or of servers themselves;
    /// without one, the authorities that the system knows.
    ///
    /// # Errors
    /// If nobody is trusted then.
    pub fn new(trusted: Option<&[u8]>) -> Result<Self, Error> {
        let trust = Arc::new(match trusted {
            Some(pem) => Trust::named(pem)?,
            None => Trust::system()?,
        });
        let versions = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let versions = versions.map_err(|error| Error::Certificate(error.to_string()))?;
        let config = versions.dangerous().with_custom_certificate_verifier(trust).with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }

    /// Encrypts a connection to a server that is meant by this name or address.
    ///
    /// # Errors
    /// If the server does not speak TLS, or its certificate is not trusted. Says which.
    pub async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<ClientStream> {
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        TlsConnector::from(Arc::clone(&self.0)).connect(name, stream).await.map_err(explained)
    }
}

/// The error with what to do.
fn explained(error: io::Error) -> io::Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let what = match inner {
        Some(rustls::Error::InvalidCertificate(why)) => {
            format!("has a certificate that is not trusted ({why}): {}", remedy(why))
        }
        Some(rustls::Error::InvalidMessage(_)) => {
            "does not speak TLS there: write http:// in place of https://".to_owned()
        }
        _ => return error,
    };
    io::Error::new(error.kind(), what)
}

/// What to do about a certificate that is not trusted.
fn remedy(why: &CertificateError) -> &'static str {
    match why {
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "write a name or address that the certificate has, or name the file of the certificate itself"
        }
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => {
            "give the server a new one, or set the clock of this host; or name the file of the certificate itself"
        }
        _ => "name the file of its authority, or of the certificate itself",
    }
}

#[cfg(test)]
mod tests {
    use super::remedy;
    use rustls::CertificateError;

    #[test]
    fn the_remedy_is_about_what_is_wrong() {
        assert!(remedy(&CertificateError::NotValidForName).starts_with("write a name"));
        assert!(remedy(&CertificateError::Expired).contains("clock"));
        assert!(remedy(&CertificateError::UnknownIssuer).starts_with("name the file of its authority"));
    }
}
