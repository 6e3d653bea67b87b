//! A directory of checkpoints of a small state, and the program.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sardana_actors::depot::identity;
use sardana_protocol::checkpoint::placement::homes;
use sardana_protocol::checkpoint::{DepotId, Manifest, ManifestKey, PieceHash};
use sardana_protocol::data::DataFingerprint;
use sardana_protocol::job::{Compression, Fingerprint, JobIdentity, JobSpec, LastBatch, Order};
use sardana_protocol::limits::PIECE_BYTES;
use sardana_protocol::snapshot::SnapshotId;
use sardana_protocol::state::{Dtype, StateHash, StateHasher, TensorSpec};
use sardana_protocol::words::{Generation, Incarnation, JobId, Step};
use sardana_storage::manifest;
use sardana_storage::store::{MANIFESTS_FOLDER, PinId, SEGMENTS_FOLDER, Store};
use tempfile::TempDir;

use super::program::{has, said, sardana};

/// A tensor of more than one piece, the first of which no step changes.
pub(crate) const WEIGHT: usize = PIECE_BYTES / 4 + 1_000;

/// A state's tensors in order.
pub(crate) type Tensors = Vec<(TensorSpec, Vec<u8>)>;

/// The state at a step.
pub(crate) fn state(step: u64) -> Tensors {
    let mut weight: Vec<u8> = (0..WEIGHT as u32).flat_map(|at| (at as f32).to_le_bytes()).collect();
    let last = WEIGHT * 4 - 4;
    weight[last..].copy_from_slice(&(step as f32).to_le_bytes());
    let mean: Vec<u8> = [0.5, -1.25, step as f64]
        .iter()
        .flat_map(|mean: &f64| mean.to_le_bytes())
        .collect();
    vec![
        (TensorSpec::new("layer.weight", Dtype::F32, &[WEIGHT]), weight),
        (TensorSpec::new("layer.none", Dtype::F32, &[0, 3]), Vec::new()),
        (TensorSpec::new("mean", Dtype::F64, &[3, 1]), mean),
        (TensorSpec::new("count", Dtype::U64, &[]), step.to_le_bytes().to_vec()),
    ]
}

/// Whether each of two depots keeps a piece that only the state of this step has.
fn is_on_both(step: u64, depots: &[DepotId]) -> bool {
    let pieces = |step| {
        let tensors = state(step);
        let parts = tensors.iter().flat_map(|(_, bytes)| bytes.chunks(PIECE_BYTES));
        parts.map(PieceHash::of).collect::<BTreeSet<PieceHash>>()
    };
    let others = pieces(step + 1);
    let own: Vec<PieceHash> = pieces(step).difference(&others).copied().collect();
    depots
        .iter()
        .all(|depot| own.iter().any(|piece| homes(*piece, depots, 1).contains(depot)))
}

/// Its hash, from the whole tensors.
pub(crate) fn hash(step: u64, tensors: &Tensors) -> StateHash {
    let mut hasher = StateHasher::new(Step::new(step));
    tensors.iter().for_each(|(spec, bytes)| hasher.tensor(spec, bytes));
    hasher.finish()
}

fn job() -> JobIdentity {
    let hash = StateHash::new([9; 32]);
    JobIdentity {
        spec: JobSpec {
            name: "digits".to_owned(),
            seed: 77,
            shards: 12,
            steps: Step::new(1_000),
            samples: 6_000,
            batch: 64,
            last_batch: LastBatch::Short,
            order: Order::Exact,
            compression: Compression::None,
            data: DataFingerprint::default(),
        },
        state_zero: hash,
        fingerprint: Fingerprint {
            program: hash,
            tensors: hash,
            settings: hash,
            processor: "x86_64 avx2".to_owned(),
            device: "cpu".to_owned(),
            libraries: "none 1".to_owned(),
            probe: hash,
        },
    }
}

/// Saves the state of a step in the store of `depot`, which keeps its part of it.
pub(crate) fn save(store: &Store, step: u64, depot: DepotId, depots: &[DepotId]) -> ManifestKey {
    save_tensors(store, step, &state(step), depot, depots)
}

/// The same with these tensors.
pub(crate) fn save_tensors(store: &Store, step: u64, tensors: &Tensors, depot: DepotId, depots: &[DepotId]) -> ManifestKey {
    let specs: Vec<TensorSpec> = tensors.iter().map(|(spec, _)| spec.clone()).collect();
    let description = manifest::encode_description(&specs).unwrap();
    let parts: Vec<&[u8]> = tensors.iter().flat_map(|(_, bytes)| bytes.chunks(PIECE_BYTES)).collect();
    let manifest = Manifest {
        run: JobId::new([3; 16]),
        snapshot: SnapshotId {
            generation: Generation::new(Incarnation::new(2), 5),
            step: Step::new(step),
        },
        identity: job(),
        description: vec![PieceHash::of(&description)],
        pieces: parts.iter().map(|part| PieceHash::of(part)).collect(),
        bytes: parts.iter().map(|part| part.len() as u64).sum(),
        replicas: 1,
        depots: depots.to_vec(),
        placing: sardana_protocol::checkpoint::Placing::BY_HAND,
    };
    let own = manifest::pieces_at(&manifest, depot);
    let pin = PinId::new(1);
    for part in parts.into_iter().chain([&description[..]]) {
        if own.contains(&PieceHash::of(part)) {
            store.put(pin, &[part]).unwrap();
        }
    }
    store.sync().unwrap();
    let bytes = manifest::encode(&manifest).unwrap();
    let key = store.commit(&manifest::stored(&manifest, bytes, depot)).unwrap();
    store.unpin(pin);
    key
}

/// A folder for directories of checkpoints.
pub(crate) struct Site(TempDir);

impl Site {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A site with the directory `a`, which has the checkpoints of these steps, whole.
    pub(crate) fn with(steps: &[u64]) -> Self {
        let site = Self::new();
        site.save("a", steps);
        site
    }

    pub(crate) fn save(&self, name: &str, steps: &[u64]) -> Vec<ManifestKey> {
        let store = Store::open(&self.path(name)).unwrap().store;
        let depot = self.depot(name);
        steps.iter().map(|&step| save(&store, step, depot, &[depot])).collect()
    }

    /// Directories `a` and `b` of two hosts, each of which has only its part.
    pub(crate) fn spread(steps: &[u64]) -> Self {
        // What directories are called is drawn, and decides which of them keeps what: both shall have some of each step.
        let (site, depots) = loop {
            let site = Self::new();
            let depots = ["a", "b"].map(|name| site.depot(name));
            if steps.iter().chain(&[30]).all(|step| is_on_both(*step, &depots)) {
                break (site, depots);
            }
        };
        for (name, depot) in ["a", "b"].into_iter().zip(depots) {
            let store = Store::open(&site.path(name)).unwrap().store;
            for &step in steps {
                save(&store, step, depot, &depots);
            }
        }
        site
    }

    /// The depot of a directory.
    pub(crate) fn depot(&self, name: &str) -> DepotId {
        identity(&self.path(name)).unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A private folder with nothing in it.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        path
    }

    /// `sardana checkpoints` with these arguments, in the site's folder; `@m` is the mirror `m` there, as a URL.
    pub(crate) fn command(&self, line: &str) -> Command {
        let line = line.replace('@', &format!("file://{}/", self.0.path().display()));
        let mut command = sardana(&format!("checkpoints {line}"));
        command.current_dir(self.0.path());
        command
    }

    /// What it prints when it does what it should.
    pub(crate) fn done(&self, line: &str) -> String {
        let [out, _] = said(&mut self.command(line), 0);
        out
    }

    /// The same, and these words must be in it.
    pub(crate) fn says(&self, line: &str, words: &[&str]) -> String {
        let out = self.done(line);
        has(&out, words);
        out
    }

    /// What it prints, and why it fails, with these words.
    pub(crate) fn fails(&self, line: &str, words: &[&str]) -> String {
        self.ends(line, 1, words)
    }

    /// The same where it is called wrongly.
    pub(crate) fn misused(&self, line: &str, words: &[&str]) {
        self.ends(line, 2, words);
    }

    fn ends(&self, line: &str, code: i32, words: &[&str]) -> String {
        let said = said(&mut self.command(line), code).concat();
        has(&said, words);
        said
    }

    pub(crate) fn json(&self, line: &str) -> serde_json::Value {
        serde_json::from_str(&self.done(&format!("{line} --json"))).unwrap()
    }

    /// The files of one of a directory's folders.
    fn files(&self, name: &str, folder: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path(name).join(folder)).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }

    pub(crate) fn segments(&self, name: &str) -> Vec<PathBuf> {
        self.files(name, SEGMENTS_FOLDER)
    }

    /// The file of the manifest of a step.
    pub(crate) fn manifest(&self, name: &str, step: u64) -> PathBuf {
        let mut files = self.files(name, MANIFESTS_FOLDER).into_iter();
        let start = format!("{step:020}-");
        let is_it = |file: &PathBuf| file.file_name().and_then(OsStr::to_str).unwrap().starts_with(&start);
        files.find(is_it).unwrap()
    }

    /// Flips a bit in the first place of a directory's segments where these bytes are.
    pub(crate) fn flip(&self, name: &str, needle: &[u8]) {
        for path in self.segments(name) {
            let mut bytes = fs::read(&path).unwrap();
            if let Some(at) = bytes.windows(needle.len()).position(|window| window == needle) {
                bytes[at] ^= 4;
                return fs::write(&path, bytes).unwrap();
            }
        }
        panic!("the bytes are in no segment");
    }
}

pub(crate) fn copy_folder(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(status.success());
}
