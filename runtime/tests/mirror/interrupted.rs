//! An upload that was interrupted goes on, and what it left is never taken for a checkpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sardana::checkpoints::mirror::{Belief, Pieces, Sent, UploadError};
use sardana::checkpoints::{Checkpoints, Dtype, ManifestKey, PieceHash, TensorSpec};
use sardana_storage::store::Store;

use super::objects::{objects, open};
use super::program::has;
use super::site::{Site, Tensors, save_tensors};

/// A state of four packs, of which the last is short and two are equal.
fn large(step: u64) -> Tensors {
    const FLOATS: usize = 4 << 20;
    let tensor = |name: &str, floats: usize, seed: u32| {
        let values = (0..floats as u32).flat_map(|at| (at.wrapping_mul(2_654_435_761) ^ seed).to_le_bytes());
        (TensorSpec::new(name, Dtype::F32, &[floats]), values.collect())
    };
    vec![
        tensor("frozen", FLOATS, 1),
        tensor("moving", FLOATS, 2 + u32::try_from(step).unwrap()),
        tensor("frozen again", FLOATS, 1),
        tensor("small", 100, 3),
    ]
}

fn site(steps: &[u64]) -> (Site, Vec<ManifestKey>) {
    let site = Site::new();
    let depot = site.depot("a");
    let store = Store::open(&site.path("a")).unwrap().store;
    let keys = steps
        .iter()
        .map(|&step| save_tensors(&store, step, &large(step), depot, &[depot]));
    let keys = keys.collect();
    (site, keys)
}

/// Gives pieces so many times only.
#[derive(Clone)]
struct Limited {
    from: Arc<Checkpoints>,
    left: Arc<AtomicUsize>,
}

impl Pieces for Limited {
    async fn read(&self, pieces: Vec<PieceHash>) -> Result<Vec<Vec<u8>>, String> {
        let took = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match took {
            Ok(_) => self.from.read(pieces).await,
            Err(_) => Err("the power is gone".to_owned()),
        }
    }
}

async fn upload(site: &Site, key: ManifestKey, from: &Arc<Checkpoints>, reads: usize) -> Result<Sent, UploadError> {
    let bytes = from.main().store().show(key).unwrap().bytes().to_vec();
    let source = Limited {
        from: Arc::clone(from),
        left: Arc::new(AtomicUsize::new(reads)),
    };
    let mut told = 0;
    let sent = open(site, "m")
        .upload(key, &bytes, &source, Belief::Lengths, |bytes| told += bytes)
        .await;
    assert!(sent.is_err() || told > 32 << 20, "told of {told} bytes");
    sent
}

#[tokio::test]
async fn what_was_sent_is_not_sent_again() {
    let (site, keys) = site(&[10, 20]);
    let from = Arc::new(Checkpoints::open(&site.path("a"), &[]).unwrap());
    let mut there = 0;
    // Reads are of the description, and of each of three packs: two of the four are the same.
    for reads in 0..4 {
        let error = upload(&site, keys[0], &from, reads).await.unwrap_err().to_string();
        has(&error, &["the power is gone"]);
        assert_eq!(objects(&site, "m", "manifests").len(), 0);
        let found = objects(&site, "m", "packs").len();
        assert!((there..=2).contains(&found), "{found} after {there}");
        there = found;
    }
    let sent = upload(&site, keys[0], &from, 4).await.unwrap();
    assert_eq!((sent.kept, sent.objects), (there as u64, 4 - there as u64));
    // Of the next checkpoint only the pack that changed is sent.
    let sent = upload(&site, keys[1], &from, 2).await.unwrap();
    let expected = Sent {
        objects: 1,
        bytes: 16 << 20,
        kept: 3,
    };
    assert_eq!(sent, expected);
    drop(from);
    site.done("verify @m");
    site.says("copy @m b all", &["copied s10", "copied s20"]);
    site.done("verify b");
    let shown = ["@m", "a"].map(|place| site.json(&format!("show {place} 20"))["state"].clone());
    assert_eq!(shown[0], shown[1]);
}
