//! Where a mirror is. Parsed by any build, also by one that reaches no object storage.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// Longest URL. Stores bound names to a kilobyte, and ours come behind.
const MOST_BYTES: usize = 512;

/// A place in object storage: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, or `file:///folder`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorUrl(Location);

/// The same, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Location {
    /// A store that is reached over a network.
    Bucket {
        service: Service,
        bucket: String,
        /// Without slashes around it; may be empty.
        prefix: String,
    },
    /// A folder of a disk, which may be another host's.
    Folder(PathBuf),
}

/// The protocol that a store speaks, by its scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub(super) enum Service {
    /// Amazon S3, and whatever speaks like it.
    S3,
    /// Google Cloud Storage.
    Gs,
    /// Azure Blob Storage.
    Az,
}

/// What is no such URL. The user writes it as the message says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///FOLDER, found {found:?}: {reason}"
)]
pub struct MirrorUrlError {
    found: String,
    reason: &'static str,
}

const SCHEME: &str = "its scheme is none of these";
const LONG: &str = "it has more than 512 bytes";
const RELATIVE: &str = "a folder begins with three slashes, and has no `.` or `..` in it";
const NO_BUCKET: &str = "the name of the bucket has 1 to 63 letters, digits, `.`, `-` or `_`";
const PREFIX: &str = "the prefix has letters, digits and `.-_=+,@/` only, no empty parts, and no `.` or `..`; credentials come from the environment";

impl MirrorUrl {
    /// Whether `text` looks like a URL rather than a path: it has a scheme.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        scheme.is_some_and(|scheme| !scheme.is_empty() && scheme.chars().all(|char| char.is_ascii_alphanumeric()))
    }

    /// The place in object storage.
    #[cfg(feature = "mirror")]
    pub(super) const fn place(&self) -> &Location {
        &self.0
    }
}

impl fmt::Display for MirrorUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Location::Bucket { service, bucket, prefix } if prefix.is_empty() => write!(f, "{service}://{bucket}"),
            Location::Bucket { service, bucket, prefix } => write!(f, "{service}://{bucket}/{prefix}"),
            Location::Folder(path) => write!(f, "file://{}", path.display()),
        }
    }
}

impl FromStr for MirrorUrl {
    type Err = MirrorUrlError;

    fn from_str(text: &str) -> Result<Self, MirrorUrlError> {
        let error = |reason| MirrorUrlError {
            found: plain(text),
            reason,
        };
        if text.len() > MOST_BYTES {
            return Err(error(LONG));
        }
        if let Some(path) = text.strip_prefix("file://") {
            return folder(path).map(Self).ok_or_else(|| error(RELATIVE));
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(|| error(SCHEME))?;
        let service = scheme.parse().map_err(|_| error(SCHEME))?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if !is_bucket(bucket) {
            return Err(error(NO_BUCKET));
        }
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        if !(prefix.is_empty() || prefix.split('/').all(is_part)) {
            return Err(error(PREFIX));
        }
        Ok(Self(Location::Bucket {
            service,
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        }))
    }
}

/// What was typed, as far as it may be shown: what looks like a secret in it is not repeated.
fn plain(text: &str) -> String {
    let shown = text.split(['?', '#']).next().unwrap_or_default();
    let shown = match (shown.find("://"), shown.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => format!("{}://…{}", &shown[..scheme], &shown[at..]),
        _ => shown.to_owned(),
    };
    shown.chars().take(MOST_BYTES).collect()
}

fn is_bucket(name: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=63).contains(&name.len()) && name.bytes().all(fine) && name.bytes().any(|byte| byte != b'.')
}

fn is_part(part: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b".-_=+,@".contains(&byte);
    !matches!(part, "" | "." | "..") && part.bytes().all(fine)
}

fn folder(path: &str) -> Option<Location> {
    let path = Path::new(path);
    let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    let fine = path.is_absolute() && path.components().all(is_plain) && path.file_name().is_some();
    fine.then(|| Location::Folder(path.components().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_printed_as_they_were_given() {
        for text in [
            "s3://bucket/prefix/of/a-job_1",
            "s3://bucket",
            "gs://my.bucket/x=1",
            "az://container/job",
            "file:///data/my mirror",
        ] {
            assert_eq!(text.parse::<MirrorUrl>().unwrap().to_string(), text);
            assert!(MirrorUrl::is_meant(text));
        }
        for text in ["s3://bucket/", "file:///data//job/"] {
            assert!(text.parse::<MirrorUrl>().unwrap().to_string().len() < text.len());
        }
        for text in ["dir", "/a/b", "C:/x", "://x", "a b://x"] {
            assert!(!MirrorUrl::is_meant(text), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused_and_no_secret_repeated() {
        let long = format!("s3://bucket/{}", "x".repeat(MOST_BYTES));
        for text in [
            "",
            "dir",
            "http://host/x",
            "s3://",
            "s3:///x",
            "s3://..",
            "s3://bucket//x",
            "s3://bucket/../x",
            "s3://bucket/a%2e",
            "s3://bucket/a b",
            "file://host/x",
            "file:///",
            "file:///a/../b",
            &long,
        ] {
            let error = text.parse::<MirrorUrl>().unwrap_err().to_string();
            assert!(error.contains("s3://BUCKET/PREFIX"), "{error}");
        }
        for text in ["s3://key:hunter2@bucket/x", "az://container/x?sig=hunter2"] {
            let error = text.parse::<MirrorUrl>().unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
