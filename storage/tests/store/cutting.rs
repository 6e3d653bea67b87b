//! What is on a disk when its power was cut: all that was synced, and of the rest anything.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::memory::{Image, Move, Op, Write, apply};
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
    let (mut writes, mut moves): (Vec<(u64, &Write)>, Vec<&Move>) = (Vec::new(), Vec::new());
    for op in log {
        match op {
            Op::Move(op) => moves.push(op),
            Op::Write(id, op) => writes.push((*id, op)),
            Op::Sync(id) => settle(&mut writes, |(of, _)| of == id, |(id, op)| write(&mut files, id, op)),
            // What was under way is lost, or on the disk, or half of it.
            Op::SyncFailed(id) => settle(
                &mut writes,
                |(of, _)| of == id,
                |(id, op)| perhaps(&mut files, id, op, unsynced, random),
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
    for (id, op) in writes {
        perhaps(&mut files, id, op, unsynced, random);
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
fn settle<T: Copy>(ops: &mut Vec<T>, chosen: impl Fn(&T) -> bool, mut take: impl FnMut(T)) {
    ops.retain(|op| {
        let taken = chosen(op);
        if taken {
            take(*op);
        }
        !taken
    });
}

fn is_in(op: &Move, folder: &Path) -> bool {
    let (Move::Create(path, _) | Move::Rename(path, ..) | Move::Remove(path)) = op;
    path.parent() == Some(folder)
}

fn rename(names: &mut BTreeMap<PathBuf, u64>, op: &Move) {
    match op {
        Move::Create(path, id) => drop(names.insert(path.clone(), *id)),
        Move::Rename(from, to, id) => {
            names.remove(from);
            names.insert(to.clone(), *id);
        }
        Move::Remove(path) => drop(names.remove(path)),
    }
}

fn write(files: &mut BTreeMap<u64, Vec<u8>>, id: u64, op: &Write) {
    let file = files.entry(id).or_default();
    match op {
        Write::At(offset, bytes) => apply(file, *offset, bytes),
        Write::SetLen(len) => file.resize(*len as usize, 0),
    }
}

fn perhaps(files: &mut BTreeMap<u64, Vec<u8>>, id: u64, op: &Write, unsynced: Unsynced, random: &mut Random) {
    match (unsynced, op) {
        (Unsynced::Kept, _) => write(files, id, op),
        (Unsynced::Dropped, _) => {}
        (Unsynced::Any, Write::At(offset, bytes)) => match random.below(4) {
            0 => write(files, id, op),
            1 => {}
            2 => {
                let torn = &bytes[..random.below(bytes.len() as u64) as usize];
                apply(files.entry(id).or_default(), *offset, torn);
            }
            // The disk writes sectors, in any order; the file's length may come before them.
            _ => {
                let mut at = *offset as usize;
                let end = at + bytes.len();
                let file = files.entry(id).or_default();
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
        (Unsynced::Any, Write::SetLen(_)) => {
            if random.below(2) == 0 {
                write(files, id, op);
            }
        }
    }
}
