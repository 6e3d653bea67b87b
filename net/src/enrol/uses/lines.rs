//! The lines in which uses of invitations are written down.

use std::collections::{BTreeMap, BTreeSet};

use data_encoding::HEXLOWER;

use crate::enrol::invitation::{Nonce, Used};
use crate::trust::{KeyDigest, Moment};

/// What is known of one invitation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::enrol) struct Record {
    pub(super) expires: Moment,
    pub(super) used: Used,
    /// With which keys it was used, but for uses that an older release has written down.
    pub(super) keys: BTreeSet<KeyDigest>,
}

impl Record {
    /// Its lines in the file.
    pub(super) fn lines(&self) -> usize {
        self.keys.len().max(1)
    }
}

/// One use: nonce, expiry, last use, count, the key, and a hash of these. An older release has written down no key.
pub(super) fn line(nonce: &Nonce, expires: Moment, used: Used, key: Option<KeyDigest>) -> String {
    let mut body = format!(
        "{} {} {} {}",
        HEXLOWER.encode(nonce),
        expires.seconds(),
        used.last.seconds(),
        used.count,
    );
    if let Some(key) = key {
        body = format!("{body} {}", HEXLOWER.encode(&key.bytes()));
    }
    format!("{body} {}\n", blake3::hash(body.as_bytes()))
}

/// All that is known of an invitation: a line for each key.
pub(super) fn all_lines(nonce: &Nonce, record: &Record) -> String {
    let line = |key| line(nonce, record.expires, record.used, key);
    if record.keys.is_empty() {
        line(None)
    } else {
        record.keys.iter().map(|&key| line(Some(key))).collect()
    }
}

/// What is known of each invitation, the newest line counts and all keys, or the number of the first line that is damaged.
pub(in crate::enrol) fn parse(bytes: &[u8]) -> Result<BTreeMap<Nonce, Record>, usize> {
    let mut known = BTreeMap::<Nonce, Record>::new();
    // A last line without an end was being written when the machine stopped: nothing was given for it.
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    for (index, text) in bytes[..whole].split(|&byte| byte == b'\n').enumerate() {
        if text.is_empty() && index > 0 {
            continue;
        }
        if text.is_empty() {
            break;
        }
        let (nonce, mut record) = std::str::from_utf8(text).ok().and_then(record).ok_or(index + 1)?;
        if let Some(before) = known.remove(&nonce) {
            let Record { keys, .. } = before;
            record.keys.extend(keys);
        }
        known.insert(nonce, record);
    }
    Ok(known)
}

fn record(text: &str) -> Option<(Nonce, Record)> {
    let (body, hash) = text.rsplit_once(' ')?;
    if blake3::hash(body.as_bytes()).to_string() != hash {
        return None;
    }
    let mut parts = body.split(' ');
    let nonce = HEXLOWER.decode(parts.next()?.as_bytes()).ok()?.try_into().ok()?;
    let mut number = || parts.next()?.parse::<u64>().ok();
    let (expires, last, count) = (number()?, number()?, number()?);
    let used = Used {
        count: u32::try_from(count).ok()?,
        last: Moment::new(last),
    };
    let key = match parts.next() {
        Some(key) => Some(KeyDigest::new(HEXLOWER.decode(key.as_bytes()).ok()?.try_into().ok()?)),
        None => None,
    };
    let record = Record {
        expires: Moment::new(expires),
        used,
        keys: key.into_iter().collect(),
    };
    parts.next().is_none().then_some((nonce, record))
}
