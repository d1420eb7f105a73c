//! Whose certificates a client trusts.
//!
//! rustls refuses a server's certificate that signed itself, also where the user names it as an
//! authority, because such certificates usually say that they are authorities
//! (`CaUsedAsEndEntity`). `openssl req -x509` makes such certificates by default. So a
//! certificate that the user names is trusted where a server has exactly this one: the server
//! proves that it has its key, and neither its names nor its dates matter.

use crate::Error;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::fs;
use std::sync::Arc;

/// Where systems have the certificates of their authorities: Debian and Alpine, Red Hat, SUSE,
/// others.
const AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The algorithms.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The certificates in a text.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())
}

/// Authorities, and certificates of servers that are trusted by themselves.
#[derive(Debug)]
pub struct Trust {
    authorities: Arc<WebPkiServerVerifier>,
    servers: Vec<CertificateDer<'static>>,
}

impl Trust {
    /// Trusts the certificates in a text, and no others.
    ///
    /// # Errors
    /// If there is none that can be read.
    pub fn named(pem: &[u8]) -> Result<Self, Error> {
        let servers = certificates(pem).map_err(Error::Certificate)?;
        Self::of(servers.clone(), servers).ok_or(Error::NothingTrusted)
    }

    /// Trusts the system's authorities.
    ///
    /// # Errors
    /// If the system has none.
    pub fn system() -> Result<Self, Error> {
        let found = AUTHORITIES.iter().find_map(|path| certificates(&fs::read(path).ok()?).ok());
        found.and_then(|authorities| Self::of(authorities, Vec::new())).ok_or(Error::NoAuthorities)
    }

    fn of(authorities: Vec<CertificateDer<'static>>, servers: Vec<CertificateDer<'static>>) -> Option<Self> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(authorities);
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
        Some(Self { authorities: verifier.ok()?, servers })
    }
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        server: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.servers.iter().any(|known| known == server) {
            return Ok(ServerCertVerified::assertion());
        }
        self.authorities.verify_server_cert(server, between, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}
