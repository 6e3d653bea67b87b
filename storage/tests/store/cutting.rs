//! What is on a disk when its power was cut: all that was synced, and of the rest anything.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::memory::{Image, Op, apply};
use crate::random::Random;

/// What becomes of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsynced {
    Kept,
    Dropped,
    /// Some is kept, some dropped, some torn.
    Any,
}

/// What a disk that had `base` on it has after `log` and a power cut.
pub(crate) fn cut(base: &Image, log: &[Op], unsynced: Unsynced, random: &mut Random) -> Image {
    let mut files: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut names: BTreeMap<PathBuf, u64> = BTreeMap::new();
    for (id, (path, bytes)) in base.iter().enumerate() {
        files.insert(id as u64, bytes.clone());
        names.insert(path.clone(), id as u64);
    }
    let (mut writes, mut moves): (Vec<&Op>, Vec<&Op>) = (Vec::new(), Vec::new());
    for op in log {
        match op {
            Op::Create(..) | Op::Rename(..) | Op::Remove(_) => moves.push(op),
            Op::Write(..) | Op::SetLen(..) => writes.push(op),
            Op::Sync(id) => settle(&mut writes, |op| concerns(op, *id), |op| write(&mut files, op)),
            // What was under way is lost, or on the disk, or half of it.
            Op::SyncFailed(id) => settle(
                &mut writes,
                |op| concerns(op, *id),
                |op| perhaps(&mut files, op, unsynced, random),
            ),
            Op::SyncFolder(folder) => settle(&mut moves, |op| is_in(op, folder), |op| rename(&mut names, op)),
            Op::SyncFolderFailed(folder) => settle(
                &mut moves,
                |op| is_in(op, folder),
                |op| {
                    if keep(unsynced, random) {
                        rename(&mut names, op);
                    }
                },
            ),
            Op::Index(_) | Op::Said(_) => {}
        }
    }
    for op in writes {
        perhaps(&mut files, op, unsynced, random);
    }
    for op in moves {
        if keep(unsynced, random) {
            rename(&mut names, op);
        }
    }
    let bytes = |id: &u64| files.get(id).cloned().unwrap_or_default();
    names.iter().map(|(path, id)| (path.clone(), bytes(id))).collect()
}

fn keep(unsynced: Unsynced, random: &mut Random) -> bool {
    match unsynced {
        Unsynced::Kept => true,
        Unsynced::Dropped => false,
        Unsynced::Any => random.below(2) == 0,
    }
}

/// Takes those of `ops` out that are `chosen`.
fn settle<'a>(ops: &mut Vec<&'a Op>, chosen: impl Fn(&Op) -> bool, mut take: impl FnMut(&'a Op)) {
    ops.retain(|op| {
        let taken = chosen(op);
        if taken {
            take(op);
        }
        !taken
    });
}

fn concerns(op: &Op, file: u64) -> bool {
    matches!(op, Op::Write(id, ..) | Op::SetLen(id, _) if *id == file)
}

fn is_in(op: &Op, folder: &Path) -> bool {
    matches!(op, Op::Create(path, _) | Op::Rename(path, ..) | Op::Remove(path) if path.parent() == Some(folder))
}

fn rename(names: &mut BTreeMap<PathBuf, u64>, op: &Op) {
    match op {
        Op::Create(path, id) => drop(names.insert(path.clone(), *id)),
        Op::Rename(from, to, id) => {
            names.remove(from);
            names.insert(to.clone(), *id);
        }
        Op::Remove(path) => drop(names.remove(path)),
        Op::SyncFolder(_)
        | Op::SyncFolderFailed(_)
        | Op::Write(..)
        | Op::SetLen(..)
        | Op::Sync(_)
        | Op::SyncFailed(_)
        | Op::Index(_)
        | Op::Said(_) => panic!("{op:?} moves nothing"),
    }
}

fn write(files: &mut BTreeMap<u64, Vec<u8>>, op: &Op) {
    match op {
        Op::Write(id, offset, bytes) => apply(files.entry(*id).or_default(), *offset, bytes),
        Op::SetLen(id, len) => files.entry(*id).or_default().resize(*len as usize, 0),
        Op::Create(..)
        | Op::Rename(..)
        | Op::Remove(_)
        | Op::SyncFolder(_)
        | Op::SyncFolderFailed(_)
        | Op::Sync(_)
        | Op::SyncFailed(_)
        | Op::Index(_)
        | Op::Said(_) => panic!("{op:?} writes nothing"),
    }
}

fn perhaps(files: &mut BTreeMap<u64, Vec<u8>>, op: &Op, unsynced: Unsynced, random: &mut Random) {
    match (unsynced, op) {
        (Unsynced::Kept, _) => write(files, op),
        (Unsynced::Dropped, _) => {}
        (Unsynced::Any, Op::Write(id, offset, bytes)) => match random.below(4) {
            0 => write(files, op),
            1 => {}
            2 => {
                let torn = &bytes[..random.below(bytes.len() as u64) as usize];
                apply(files.entry(*id).or_default(), *offset, torn);
            }
            // The disk writes sectors, in any order; the file's length may come before them.
            _ => {
                let mut at = *offset as usize;
                let end = at + bytes.len();
                let file = files.entry(*id).or_default();
                file.resize(file.len().max(end), 0);
                while at < end {
                    let next = (at / 512 + 1) * 512;
                    if random.below(2) == 0 {
                        let part = at - *offset as usize..next.min(end) - *offset as usize;
                        apply(file, at as u64, &bytes[part]);
                    }
                    at = next;
                }
            }
        },
        (Unsynced::Any, _) => {
            if random.below(2) == 0 {
                write(files, op);
            }
        }
    }
}
