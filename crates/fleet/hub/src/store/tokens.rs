//! Tenants and their tokens. A token is 256 random bits, so its plain hash tells nothing about it.

use super::{Error, Store};
use rusqlite::{OptionalExtension, params};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;

/// A token's hash.
fn hash(token: &str) -> Vec<u8> {
    Sha256::digest(token.as_bytes()).to_vec()
}

/// 16 hexadecimal digits that tell texts apart.
pub fn digest(text: &str) -> String {
    hash(text).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a text can be a tenant's name.
fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(&c))
}

fn random_token() -> Result<String, Error> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).map_err(Error::Random)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Store {
    /// Makes a token of a tenant, and the tenant where it is new. The token is returned here alone.
    ///
    /// # Errors
    /// If the name is none, and those of SQLite.
    pub fn add_token(&self, tenant: &str, now_ns: i64) -> Result<String, Error> {
        if !is_name(tenant) {
            return Err(Error::Name);
        }
        let token = random_token()?;
        let mut connection = self.connect()?;
        let transaction = connection.transaction()?;
        transaction.execute("INSERT OR IGNORE INTO tenants (name) VALUES (?1)", [tenant])?;
        transaction.execute(
            "INSERT INTO tokens (hash, tenant, made_ns) SELECT ?1, id, ?2 FROM tenants WHERE name = ?3",
            params![hash(&token), now_ns, tenant],
        )?;
        transaction.commit()?;
        Ok(token)
    }

    /// Removes all tokens of a tenant; what it has sent stays. Returns how many there were.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn revoke_tokens(&self, tenant: &str) -> Result<usize, Error> {
        let removed = self.connect()?.execute(
            "DELETE FROM tokens WHERE tenant IN (SELECT id FROM tenants WHERE name = ?1)",
            [tenant],
        )?;
        Ok(removed)
    }

    /// Each tenant with the number of its tokens, and when the newest was made, nanoseconds since
    /// 1970.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn tenants(&self) -> Result<Vec<(String, i64, Option<i64>)>, Error> {
        self.read(|connection| {
            let mut found = connection.prepare(
                "SELECT name, count(hash), max(made_ns) FROM tenants LEFT JOIN tokens ON tenant = id
                 GROUP BY id ORDER BY name",
            )?;
            found.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect()
        })
    }

    /// The tenant that bears a token.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn bearer(&self, token: &str) -> Result<Option<String>, Error> {
        self.read(|connection| {
            let mut found = connection
                .prepare_cached("SELECT name FROM tokens JOIN tenants ON id = tenant WHERE hash = ?1")?;
            found.query_row([hash(token)], |row| row.get(0)).optional()
        })
    }

    /// Whether there is any token.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn has_tokens(&self) -> Result<bool, Error> {
        self.read(|connection| {
            connection.query_row("SELECT EXISTS (SELECT 1 FROM tokens)", [], |row| row.get(0))
        })
    }
}
