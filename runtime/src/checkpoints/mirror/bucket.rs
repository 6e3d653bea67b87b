//! Object storage, as the rest of the mirror sees it: bytes under names. Nothing else knows the crate `object_store`, and this knows
//! nothing of checkpoints.

use std::fmt;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path as FilePath;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientConfigKey, Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, RetryConfig};

use sardana_storage::private::Missing;

use super::Listed;
use super::error::{MirrorError, ObjectError};
use super::limits::{REQUEST, RETRIES, RETRY};
use super::url::{Location, MirrorUrl, Service};

/// A place in object storage.
#[derive(Clone)]
pub(super) struct Bucket {
    store: Arc<dyn ObjectStore>,
    /// What all names begin with.
    root: Path,
    shown: Arc<str>,
}

// What a store is made of may be secret.
impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").field("shown", &self.shown).finish_non_exhaustive()
    }
}

impl Bucket {
    /// The bucket at `url`. Nothing is asked of a network.
    pub(super) fn open(url: &MirrorUrl, otherwise: Missing) -> Result<Self, MirrorError> {
        let unusable = |reason: String| MirrorError::Unusable {
            url: url.to_string(),
            reason,
        };
        let (store, prefix): (Arc<dyn ObjectStore>, &str) = match url.place() {
            Location::Folder(path) => (Arc::new(folder(path, otherwise).map_err(unusable)?), ""),
            Location::Bucket { service, bucket, prefix } => {
                (remote(*service, bucket).map_err(|error| unusable(said(&error)))?, prefix)
            }
        };
        let root = Path::parse(prefix).map_err(|error| unusable(error.to_string()))?;
        Ok(Self::new(store, root, &url.to_string()))
    }

    fn new(store: Arc<dyn ObjectStore>, root: Path, shown: &str) -> Self {
        let shown = Arc::from(shown);
        Self { store, root, shown }
    }

    /// A bucket in memory.
    #[cfg(test)]
    pub(super) fn in_memory() -> Self {
        let store = object_store::memory::InMemory::new();
        Self::new(Arc::new(store), Path::from("test"), "memory://test")
    }

    /// What people call an object.
    pub(super) fn name_of(&self, object: &str) -> String {
        format!("{}/{object}", self.shown)
    }

    fn path(&self, object: &str) -> Path {
        object.split('/').fold(self.root.clone(), |path, part| path.join(part))
    }

    fn failed(&self, object: &str, error: &Error) -> ObjectError {
        let object = self.name_of(object);
        if matches!(error, Error::NotFound { .. }) {
            return ObjectError::Missing(object);
        }
        let reason = said(error);
        ObjectError::Store { object, reason }
    }

    /// Writes an object, in place of any other: it is there as a whole and durable when this returns, or not.
    pub(super) async fn put(&self, object: &str, bytes: Bytes) -> Result<(), ObjectError> {
        let put = self.store.put(&self.path(object), bytes.into()).await;
        put.map(drop).map_err(|error| self.failed(object, &error))
    }

    /// The same, but only if there is none, where the store can tell. Whether it was written.
    pub(super) async fn put_new(&self, object: &str, bytes: Bytes) -> Result<bool, ObjectError> {
        let options = PutOptions::from(PutMode::Create);
        let put = self.store.put_opts(&self.path(object), bytes.clone().into(), options).await;
        match put {
            Ok(_) => Ok(true),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(false),
            Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => self.put(object, bytes).await.map(|()| true),
            Err(error) => Err(self.failed(object, &error)),
        }
    }

    /// The bytes of an object that has no more than `most`; of a longer one nothing is read.
    pub(super) async fn get(&self, object: &str, most: usize) -> Result<Bytes, ObjectError> {
        let failed = |error: Error| self.failed(object, &error);
        let long = |found: u64| ObjectError::Length {
            object: self.name_of(object),
            expected: most as u64,
            most: true,
            found,
        };
        let got = self.store.get(&self.path(object)).await.map_err(failed)?;
        if got.meta.size > most as u64 {
            return Err(long(got.meta.size));
        }
        // What it said of its length is not believed either.
        let mut stream = got.into_stream();
        let mut bytes = BytesMut::new();
        while let Some(chunk) = stream.try_next().await.map_err(failed)? {
            if bytes.len() + chunk.len() > most {
                return Err(long((bytes.len() + chunk.len()) as u64));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes.freeze())
    }

    /// The objects of a folder, in no order.
    pub(super) async fn list(&self, folder: &str, most: usize) -> Result<Vec<Listed>, ObjectError> {
        let path = self.path(folder);
        let mut stream = self.store.list(Some(&path));
        let mut listed = Vec::new();
        while let Some(found) = stream.next().await {
            // A bucket that does not exist is not an empty one.
            let found = found.map_err(|error| self.failed(folder, &error))?;
            if listed.len() == most {
                let object = self.name_of(folder);
                return Err(ObjectError::TooMany { object, most });
            }
            // Without a name it is none of ours.
            let Some(name) = found.location.filename() else { continue };
            listed.push(Listed {
                name: name.to_owned(),
                bytes: found.size,
                modified: found.last_modified.into(),
            });
        }
        Ok(listed)
    }

    /// Removes an object. A missing one is no error.
    pub(super) async fn delete(&self, object: &str) -> Result<(), ObjectError> {
        match self.store.delete(&self.path(object)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed(object, &error)),
        }
    }
}

fn folder(path: &FilePath, otherwise: Missing) -> Result<LocalFileSystem, String> {
    if otherwise == Missing::Create {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|error| format!("the folder cannot be made: {error}"))?;
    }
    if !path.is_dir() {
        return Err("expected a folder, found none; see whether the path is right".to_owned());
    }
    let store = LocalFileSystem::new_with_prefix(path).map_err(|error| said(&error))?;
    Ok(store.with_fsync(true))
}

/// Where the store is, and the credentials for it, come from the environment.
fn remote(service: Service, bucket: &str) -> Result<Arc<dyn ObjectStore>, Error> {
    // Of the library's two providers, the one that it is built with. It fails only if one was chosen before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let timeout = format!("{} seconds", REQUEST.as_secs());
    let retry = RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: RETRIES,
        retry_timeout: RETRY,
    };
    let key = ClientConfigKey::Timeout;
    Ok(match service {
        Service::S3 => {
            let builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry);
            Arc::new(builder.with_config(AmazonS3ConfigKey::Client(key), timeout).build()?)
        }
        Service::Gs => {
            let builder = GoogleCloudStorageBuilder::from_env()
                .with_bucket_name(bucket)
                .with_retry(retry);
            Arc::new(builder.with_config(GoogleConfigKey::Client(key), timeout).build()?)
        }
        Service::Az => {
            let builder = MicrosoftAzureBuilder::from_env()
                .with_container_name(bucket)
                .with_retry(retry);
            Arc::new(builder.with_config(AzureConfigKey::Client(key), timeout).build()?)
        }
    })
}

/// What an error says, and what is behind it, in one line, without the part of addresses that may hold a signature.
fn said(error: &Error) -> String {
    const LONGEST: usize = 1_000;
    let mut words = error.to_string();
    let mut behind = std::error::Error::source(error);
    while let Some(source) = behind {
        let more = source.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        behind = source.source();
    }
    let words: Vec<&str> = words.split_whitespace().map(without_query).collect();
    words.join(" ").chars().take(LONGEST).collect()
}

fn without_query(word: &str) -> &str {
    let is_address = word.contains("://");
    let end = word.find('?').filter(|_| is_address);
    &word[..end.unwrap_or(word.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> String {
        said(&Error::Generic {
            store: "test",
            source: text.into(),
        })
    }

    #[test]
    fn a_signature_in_an_address_is_not_said() {
        let said = words("PUT https://account.blob/x?sv=1&sig=hunter2\n  failed: what? nothing");
        assert!(said.contains("https://account.blob/x failed: what? nothing"), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }

    #[tokio::test]
    async fn objects_are_bounded_before_they_are_believed() {
        let bucket = Bucket::in_memory();
        assert_eq!(bucket.list("a", 1).await.unwrap().len(), 0);
        bucket.put("a/x", Bytes::from_static(b"12345")).await.unwrap();
        assert_eq!(&bucket.get("a/x", 5).await.unwrap()[..], b"12345");
        let long = bucket.get("a/x", 4).await.unwrap_err();
        assert_eq!(long.to_string(), "memory://test/a/x: expected 4 bytes at most, found 5");
        assert!(!bucket.put_new("a/x", Bytes::new()).await.unwrap());
        assert!(bucket.put_new("a/y", Bytes::new()).await.unwrap());
        assert_eq!(bucket.list("a", 2).await.unwrap().len(), 2);
        assert!(matches!(bucket.list("a", 1).await, Err(ObjectError::TooMany { most: 1, .. })));
        bucket.delete("a/x").await.unwrap();
        bucket.delete("a/x").await.unwrap();
        assert!(matches!(bucket.get("a/x", 5).await, Err(ObjectError::Missing(_))));
    }
}
