//! How often each invitation was used, and with which keys: remembered until it expires, and in a file if the coordinator is to be
//! started again.

mod lines;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

use sardana_storage::private::{Existing, PrivateError, PrivateFolder, read_private, write_private};

use super::invitation::{Invitation, Nonce, Used};
use super::limits::{MAX_INVITATIONS, MAX_KEYS, SPARE_USE_LINES, USES_FILE_BYTES};
use crate::trust::{KeyDigest, Moment};

pub(super) use lines::parse;
use lines::{Record, all_lines, line};

/// The file's name in its folder.
pub const USES_FILE: &str = "uses";

/// Why uses cannot be remembered.
#[derive(Debug, thiserror::Error)]
pub enum UsesError {
    /// The file cannot be opened, or other users could have opened it.
    #[error(transparent)]
    Private(#[from] PrivateError),
    /// The file is not what was written.
    #[error(
        "{path}: line {line} is damaged. Bring the file back from a copy, or remove it: then join files that were used up can be \
         used again until they expire"
    )]
    Damaged {
        /// The path.
        path: String,
        /// Where, from 1.
        line: usize,
    },
    /// The disk failed.
    #[error("the use of the join file could not be written down: {0}; see whether the coordinator's disk is full")]
    Disk(io::Error),
    /// Too many invitations are in use.
    #[error("{MAX_INVITATIONS} join files are in use already; wait until some have expired, or use one of them")]
    TooMany,
    /// Too many uses are remembered.
    #[error("join files were used {MAX_KEYS} times already; wait until some have expired")]
    TooManyUses,
}

/// The uses of all invitations that have not expired.
#[derive(Debug, Default)]
pub struct Uses {
    by_nonce: BTreeMap<Nonce, Record>,
    log: Option<Log>,
}

#[derive(Debug)]
struct Log {
    folder: PrivateFolder,
    /// None before the first use, and after a write that failed: its end is unknown then.
    file: Option<File>,
    lines: usize,
}

impl Uses {
    /// The uses that are written down in `folder`; later ones are added there.
    ///
    /// # Errors
    /// When the file is damaged, or others could have changed it.
    pub fn kept(folder: &PrivateFolder) -> Result<Self, UsesError> {
        let path = folder.file(USES_FILE);
        let bytes = match read_private(&path, USES_FILE_BYTES) {
            Err(PrivateError::Missing { .. }) => Vec::new(),
            read => read?,
        };
        Ok(Self {
            by_nonce: parse(&bytes).map_err(|line| UsesError::Damaged {
                path: path.display().to_string(),
                line,
            })?,
            log: Some(Log {
                folder: folder.clone(),
                file: None,
                lines: 0,
            }),
        })
    }

    /// How often the invitation was used.
    #[must_use]
    pub fn of(&self, nonce: &Nonce) -> Option<Used> {
        self.by_nonce.get(nonce).map(|record| record.used)
    }

    /// Whether it was used with this key.
    #[must_use]
    pub fn is_of(&self, nonce: &Nonce, key: KeyDigest) -> bool {
        self.by_nonce.get(nonce).is_some_and(|record| record.keys.contains(&key))
    }

    /// Notes one more use, with `key` at `now`. When this returns it is on the disk, if there is a file.
    ///
    /// # Errors
    /// When it could not be noted; then it does not count.
    pub fn note(&mut self, invitation: &Invitation, key: KeyDigest, now: Moment) -> Result<(), UsesError> {
        let nonce = invitation.nonce();
        self.make_room(&nonce, now)?;
        let used = Used {
            count: self.of(&nonce).map_or(0, |used| used.count).saturating_add(1),
            last: now,
        };
        let expires = invitation.expires();
        if let Some(log) = &mut self.log {
            let line = line(&nonce, expires, used, Some(key));
            log.write(&mut self.by_nonce, &line, now)?;
        }
        let record = self.by_nonce.entry(nonce).or_insert_with(|| Record {
            expires,
            used,
            keys: BTreeSet::new(),
        });
        record.used = used;
        record.keys.insert(key);
        Ok(())
    }

    /// Forgets what has expired, if there is no room for one more use.
    fn make_room(&mut self, nonce: &Nonce, now: Moment) -> Result<(), UsesError> {
        let lines = |known: &BTreeMap<Nonce, Record>| known.values().map(Record::lines).sum::<usize>();
        let invitations = |known: &BTreeMap<Nonce, Record>| known.len() < MAX_INVITATIONS || known.contains_key(nonce);
        if invitations(&self.by_nonce) && lines(&self.by_nonce) < MAX_KEYS {
            return Ok(());
        }
        self.by_nonce.retain(|_, record| record.expires > now);
        if !invitations(&self.by_nonce) {
            Err(UsesError::TooMany)
        } else if lines(&self.by_nonce) >= MAX_KEYS {
            Err(UsesError::TooManyUses)
        } else {
            Ok(())
        }
    }
}

impl Log {
    fn write(&mut self, known: &mut BTreeMap<Nonce, Record>, line: &str, now: Moment) -> Result<(), UsesError> {
        let needed = known.values().map(Record::lines).sum::<usize>();
        let file = match self.file.take() {
            Some(file) if self.lines < needed + SPARE_USE_LINES => file,
            Some(_) | None => self.begin(known, now)?,
        };
        let mut appending = &file;
        appending.write_all(line.as_bytes()).map_err(UsesError::Disk)?;
        file.sync_data().map_err(UsesError::Disk)?;
        self.lines += 1;
        self.file = Some(file);
        Ok(())
    }

    /// Writes the file anew with what is needed, and opens it.
    fn begin(&mut self, known: &mut BTreeMap<Nonce, Record>, now: Moment) -> Result<File, UsesError> {
        known.retain(|_, record| record.expires > now);
        let path: PathBuf = self.folder.file(USES_FILE);
        let text: String = known.iter().map(|(nonce, record)| all_lines(nonce, record)).collect();
        write_private(&path, text.as_bytes(), Existing::Replace)?;
        self.lines = known.values().map(Record::lines).sum();
        OpenOptions::new().append(true).open(&path).map_err(UsesError::Disk)
    }
}

#[cfg(test)]
mod tests {
    use sardana_protocol::words::JobId;
    use sardana_storage::private::Missing;

    use super::super::invitation::{InvitationKey, Terms};
    use super::*;
    use crate::trust::{Authority, Role};

    const JOB: JobId = JobId::new([7; 16]);
    const NOW: Moment = Moment::new(1_800_000_000);

    fn invitation(key: &InvitationKey, number: u32) -> Invitation {
        let terms = Terms {
            role: Role::Worker,
            expires: Moment::new(NOW.seconds() + 100),
            uses: 5,
        };
        let mut nonce = [0; 16];
        nonce[..4].copy_from_slice(&number.to_le_bytes());
        Invitation::new(key, JOB, terms, nonce, NOW).unwrap()
    }

    /// A key that was not used before.
    fn fresh() -> KeyDigest {
        KeyDigest::new(getrandom::u64().unwrap().to_le_bytes().repeat(2).try_into().unwrap())
    }

    fn key() -> InvitationKey {
        InvitationKey::of(&Authority::new(JOB).unwrap())
    }

    fn folder() -> (tempfile::TempDir, PrivateFolder) {
        let place = tempfile::tempdir().unwrap();
        let folder = PrivateFolder::open(&place.path().join("state"), Missing::Create).unwrap();
        (place, folder)
    }

    #[test]
    fn uses_outlive_the_process() {
        let (_place, folder) = folder();
        let (one, two) = (invitation(&key(), 1), invitation(&key(), 2));
        let mut uses = Uses::kept(&folder).unwrap();
        uses.note(&one, fresh(), NOW).unwrap();
        uses.note(&two, fresh(), NOW).unwrap();
        uses.note(&one, fresh(), Moment::new(NOW.seconds() + 1)).unwrap();
        for _ in 0..2 {
            let uses = Uses::kept(&folder).unwrap();
            let last = Moment::new(NOW.seconds() + 1);
            assert_eq!(uses.of(&one.nonce()), Some(Used { count: 2, last }));
            assert_eq!(uses.of(&two.nonce()), Some(Used { count: 1, last: NOW }));
        }
    }

    #[test]
    fn a_torn_last_line_is_no_use_and_any_other_damage_is_an_error() {
        let (_place, folder) = folder();
        let one = invitation(&key(), 1);
        let mut uses = Uses::kept(&folder).unwrap();
        uses.note(&one, fresh(), NOW).unwrap();
        uses.note(&one, fresh(), NOW).unwrap();
        let path = folder.file(USES_FILE);
        let whole = std::fs::read(&path).unwrap();
        let first = whole.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        for length in first..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let mut uses = Uses::kept(&folder).unwrap();
            assert_eq!(uses.of(&one.nonce()).unwrap().count, 1, "{length}");
            uses.note(&one, fresh(), NOW).unwrap();
            let again = Uses::kept(&folder).unwrap();
            assert_eq!(again.of(&one.nonce()).unwrap().count, 2, "what is added after it counts");
        }
        for at in 0..first - 1 {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, &damaged).unwrap();
            let error = Uses::kept(&folder).unwrap_err();
            assert!(matches!(error, UsesError::Damaged { line: 1, .. }), "byte {at}: {error}");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (_place, folder) = folder();
        let key = key();
        let mut uses = Uses::default();
        for number in 0..MAX_INVITATIONS as u32 {
            uses.note(&invitation(&key, number), fresh(), NOW).unwrap();
        }
        let more = invitation(&key, u32::MAX);
        assert!(matches!(uses.note(&more, fresh(), NOW), Err(UsesError::TooMany)));
        uses.note(&invitation(&key, 0), fresh(), NOW).unwrap();
        uses.note(&more, fresh(), more.expires()).unwrap();
        assert_eq!(uses.by_nonce.len(), 1, "those that expired are forgotten");

        let mut uses = Uses::kept(&folder).unwrap();
        uses.note(&invitation(&key, 1), fresh(), NOW).unwrap();
        uses.log.as_mut().unwrap().lines = SPARE_USE_LINES + 1;
        uses.note(&invitation(&key, 1), fresh(), NOW).unwrap();
        let text = std::fs::read_to_string(folder.file(USES_FILE)).unwrap();
        assert_eq!(text.lines().count(), 2, "the file was written anew");
    }

    #[test]
    fn the_same_key_is_known_again_also_by_the_next_process_and_after_the_file_was_written_anew() {
        let (_place, folder) = folder();
        let (one, keys) = (invitation(&key(), 1), [fresh(), fresh()]);
        let mut uses = Uses::kept(&folder).unwrap();
        for key in keys {
            assert!(!uses.is_of(&one.nonce(), key));
            uses.note(&one, key, NOW).unwrap();
        }
        for _ in 0..2 {
            let mut uses = Uses::kept(&folder).unwrap();
            assert_eq!(uses.of(&one.nonce()).unwrap().count, 2);
            assert!(keys.iter().all(|&key| uses.is_of(&one.nonce(), key)));
            assert!(!uses.is_of(&one.nonce(), fresh()));
            // The first use after a start writes the file anew.
            uses.note(&invitation(&self::key(), 2), fresh(), NOW).unwrap();
        }
    }

    #[test]
    fn a_file_of_a_release_that_wrote_no_keys_is_read_and_its_uses_count() {
        let (_place, folder) = folder();
        let one = invitation(&key(), 1);
        let used = Used { count: 3, last: NOW };
        let old = line(&one.nonce(), one.expires(), used, None);
        assert_eq!(old.split(' ').count(), 5, "{old}");
        write_private(&folder.file(USES_FILE), old.as_bytes(), Existing::Replace).unwrap();
        let mut uses = Uses::kept(&folder).unwrap();
        assert_eq!(uses.of(&one.nonce()), Some(used));
        let key = fresh();
        uses.note(&one, key, NOW).unwrap();
        let uses = Uses::kept(&folder).unwrap();
        assert_eq!(uses.of(&one.nonce()).unwrap().count, 4);
        assert!(uses.is_of(&one.nonce(), key));
    }

    #[test]
    fn keys_are_bounded_over_all_invitations_together() {
        let (one, two) = (invitation(&key(), 1), invitation(&key(), 2));
        let mut uses = Uses::default();
        for number in 0..MAX_KEYS as u128 {
            let key = KeyDigest::new(number.to_le_bytes());
            let used = Used { count: 1, last: NOW };
            let record = uses.by_nonce.entry(one.nonce()).or_insert_with(|| Record {
                expires: one.expires(),
                used,
                keys: BTreeSet::new(),
            });
            record.keys.insert(key);
        }
        assert!(matches!(uses.note(&two, fresh(), NOW), Err(UsesError::TooManyUses)));
        uses.note(&two, fresh(), one.expires()).unwrap();
        assert_eq!(uses.by_nonce.len(), 1, "what has expired is forgotten");
    }
}
