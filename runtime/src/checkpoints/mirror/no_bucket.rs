//! In the place of [`Bucket`] where the feature `mirror` is off: there is none.

use std::convert::Infallible;
use std::time::SystemTime;

use bytes::Bytes;

use super::error::{MirrorError, ObjectError};
use super::url::MirrorUrl;

/// This build has none.
#[derive(Debug, Clone)]
pub(super) struct Bucket(Infallible);

/// An object in a list.
#[derive(Debug, Clone)]
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) modified: SystemTime,
}

/// Whether a folder is made where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Otherwise {
    Make,
    Refuse,
}

#[expect(clippy::unused_async, reason = "the same as with the feature")]
impl Bucket {
    pub(super) fn open(url: &MirrorUrl, _otherwise: Otherwise) -> Result<Self, MirrorError> {
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
