//! A mirror in a folder of a site, and its objects as files.

use std::fs;
use std::path::PathBuf;

use sardana::checkpoints::mirror::Mirror;

use super::site::Site;

/// The mirror called `name` as a URL.
pub(crate) fn url(site: &Site, name: &str) -> String {
    format!("file://{}", site.path(name).display())
}

/// The same, open.
pub(crate) fn open(site: &Site, name: &str) -> Mirror {
    Mirror::open_or_make(&url(site, name).parse().unwrap()).unwrap()
}

/// The objects in one of its folders, by name.
pub(crate) fn objects(site: &Site, name: &str, folder: &str) -> Vec<PathBuf> {
    let folder = site.path(name).join("v1").join(folder);
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut objects: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    objects.sort();
    objects
}

/// The manifest of a step.
pub(crate) fn manifest(site: &Site, name: &str, step: u64) -> PathBuf {
    let start = format!("{step:020}-");
    let is_it = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&start);
    objects(site, name, "manifests").into_iter().find(is_it).unwrap()
}

/// Flips a bit in the first pack where these bytes are: which pack.
pub(crate) fn flip(site: &Site, name: &str, needle: &[u8]) -> PathBuf {
    for path in objects(site, name, "packs") {
        let mut bytes = fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(needle.len()).position(|window| window == needle) {
            bytes[at] ^= 4;
            fs::write(&path, bytes).unwrap();
            return path;
        }
    }
    panic!("the bytes are in no object");
}
