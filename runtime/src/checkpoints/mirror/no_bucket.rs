//! In the place of [`Bucket`] where the feature `mirror` is off: there is none.

use std::convert::Infallible;

use bytes::Bytes;
use sardana_storage::private::Missing;

use super::Listed;
use super::error::{MirrorError, ObjectError};
use super::url::MirrorUrl;

/// This build has no bucket.
#[derive(Debug, Clone)]
pub(super) struct Bucket(Infallible);

#[expect(clippy::unused_async, reason = "the same as with the feature")]
impl Bucket {
    pub(super) fn open(url: &MirrorUrl, _otherwise: Missing) -> Result<Self, MirrorError> {
        Err(MirrorError::NotBuilt(url.to_string()))
    }

    pub(super) fn name_of(&self, _object: &str) -> String {
        match self.0 {}
    }

    pub(super) async fn put(&self, _object: &str, _bytes: Bytes) -> Result<(), ObjectError> {
        match self.0 {}
    }

    pub(super) async fn put_new(&self, _object: &str, _bytes: Bytes) -> Result<bool, ObjectError> {
        match self.0 {}
    }

    pub(super) async fn get(&self, _object: &str, _most: usize) -> Result<Bytes, ObjectError> {
        match self.0 {}
    }

    pub(super) async fn list(&self, _folder: &str, _most: usize) -> Result<Vec<Listed>, ObjectError> {
        match self.0 {}
    }

    pub(super) async fn delete(&self, _object: &str) -> Result<(), ObjectError> {
        match self.0 {}
    }
}
