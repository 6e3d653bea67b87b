//! What a host is called.

use std::fmt;
use std::str::FromStr;

/// Longest name of a host: that of the domain name system.
pub const HOST_NAME_BYTES: usize = 253;

/// What a host is called: by people, in a job's status, and when checkpoints are placed, since replicas are for hosts that are lost. Two
/// checkpoint actors that say the same name are on one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName(String);

/// A text that is no name of a host. Give another one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected the name of a host: 1 to {HOST_NAME_BYTES} letters, digits, dots, hyphens and underscores, the first of them a letter or digit; \
     found {found:?}"
)]
pub struct HostNameError {
    found: String,
}

impl FromStr for HostName {
    type Err = HostNameError;

    fn from_str(text: &str) -> Result<Self, HostNameError> {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        let begins = text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
        if begins && text.len() <= HOST_NAME_BYTES && text.bytes().all(known) {
            return Ok(Self(text.to_owned()));
        }
        let found = text.chars().take(HOST_NAME_BYTES).collect();
        Err(HostNameError { found })
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<HostName> for String {
    fn from(name: HostName) -> Self {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_hosts_are_called() {
        let longest = "a".repeat(HOST_NAME_BYTES);
        for name in ["a", "10.0.0.1", "rack-7.gpu_3", "ip-10-0-0-1.ec2.internal", &longest] {
            assert_eq!(name.parse::<HostName>().unwrap().to_string(), name);
        }
        let longer = "a".repeat(HOST_NAME_BYTES + 1);
        for name in ["", " ", "a b", "-a", ".a", "a/b", "a\u{7}", "\u{e9}", &longer] {
            let error = name.parse::<HostName>().unwrap_err().to_string();
            assert!(error.contains("letters, digits"), "{error}");
            assert!(error.len() < 2 * HOST_NAME_BYTES, "{error}");
        }
    }
}
