//! A keyring without the network: the registrar is asked directly, and what time it is is an argument.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use sardana_protocol::words::JobId;

use super::super::invitation::Terms;
use super::super::messages::EnrolRequest;
use super::super::registrar::Registrar;
use super::*;
use crate::enrol::limits::HOST_RENEWED_WITHIN;
use crate::trust::Authority;
use crate::trust::limits::CERTIFICATE_VALIDITY;

const JOB: JobId = JobId::new([7; 16]);
const SECOND: Duration = Duration::from_secs(1);

/// A job, one join file for it, and a keyring.
struct Site {
    _place: tempfile::TempDir,
    folder: PathBuf,
    registrar: Registrar,
    join: JoinFile,
    now: SystemTime,
}

impl Site {
    fn new(role: Role, uses: u32) -> Self {
        let place = tempfile::tempdir().unwrap();
        let authority = Arc::new(Authority::new(JOB).unwrap());
        let (registrar, now) = (Registrar::new(Arc::clone(&authority)), SystemTime::now());
        let terms = Terms {
            role,
            expires: Moment::of(now + 600 * SECOND),
            uses,
        };
        let invitation = registrar.invite(terms, Moment::of(now)).unwrap();
        let join = JoinFile::new(invitation, &authority, vec!["127.0.0.1:9".parse().unwrap()]);
        Self {
            folder: place.path().join("keyring"),
            _place: place,
            registrar,
            join,
            now,
        }
    }

    fn keyring(&self) -> Keyring {
        Keyring::open(&self.folder).unwrap()
    }

    fn hold(&self) -> Result<Held, KeyringError> {
        self.keyring().hold(&self.join, Moment::of(self.now))
    }

    /// What a holder does so long after the file was made.
    fn errand(&self, held: &Held, after: Duration) -> Result<Errand, EnrolError> {
        let now = self.now + after;
        held.errand(&self.join, self.join.is_good(Path::new("a.join"), Moment::of(now)), now)
    }

    /// The registrar's answer, which is kept.
    fn enrol(&self, held: &mut Held) -> Result<Credentials, super::super::EnrolRefusal> {
        let (key, asked) = asks(self.errand(held, Duration::ZERO).unwrap());
        let certificate = self.registrar.enrol(&asked, Moment::of(self.now))?;
        let credentials = key.certified(&self.join.authority(), certificate).unwrap();
        held.keep(&credentials, self.now).unwrap();
        Ok(credentials)
    }

    /// The only file with a key.
    fn file(&self) -> PathBuf {
        let files = fs::read_dir(&self.folder).unwrap().map(|file| file.unwrap().path());
        let mut keys: Vec<PathBuf> = files
            .filter(|path| path.extension().is_some_and(|end| end == ENDING))
            .collect();
        assert_eq!(keys.len(), 1, "{keys:?}");
        keys.remove(0)
    }
}

fn asks(errand: Errand) -> (PendingKey, EnrolRequest) {
    match errand {
        Errand::Ask(asking) => (asking.key, asking.asked),
        Errand::Show(credentials) => panic!("expected a request, found {credentials:?}"),
    }
}

fn shows(errand: Errand) -> Credentials {
    match errand {
        Errand::Show(credentials) => credentials,
        Errand::Ask(_) => panic!("expected credentials, found a request"),
    }
}

#[test]
fn a_key_is_there_before_it_is_used_so_that_a_lost_answer_costs_no_use() {
    let site = Site::new(Role::Agent, 1);
    for _ in 0..3 {
        // Each time the process ends before the answer comes.
        let held = site.hold().unwrap();
        assert_eq!(fs::metadata(site.file()).unwrap().permissions().mode() & 0o777, 0o600);
        let (_, asked) = asks(site.errand(&held, Duration::ZERO).unwrap());
        site.registrar.enrol(&asked, Moment::of(site.now)).unwrap();
    }
    let credentials = site.enrol(&mut site.hold().unwrap()).unwrap();
    let again = shows(site.errand(&site.hold().unwrap(), Duration::ZERO).unwrap());
    assert_eq!(again, credentials, "what it got is used without asking");
    // Another holder's is another key, and another use.
    fs::remove_file(site.file()).unwrap();
    let error = site.enrol(&mut site.hold().unwrap()).unwrap_err().to_string();
    assert!(error.contains("used up (1 of 1)"), "{error}");
}

#[test]
fn who_stays_on_its_host_is_renewed_after_its_file_has_expired_and_an_operator_is_not() {
    for role in [Role::Agent, Role::Checkpoint] {
        let site = Site::new(role, 1);
        let mut held = site.hold().unwrap();
        let credentials = site.enrol(&mut held).unwrap();
        assert_eq!(shows(site.errand(&held, 60 * SECOND).unwrap()), credentials);
        let (_, asked) = asks(site.errand(&held, CERTIFICATE_VALIDITY / 2).unwrap());
        let expected = credentials.certificate().to_vec();
        assert!(matches!(asked, EnrolRequest::RunOut { certificate, .. } if certificate == expected));
    }
    let site = Site::new(Role::Operator, 1);
    let mut held = site.hold().unwrap();
    let credentials = site.enrol(&mut held).unwrap();
    assert_eq!(shows(site.errand(&held, 60 * SECOND).unwrap()), credentials);
    let error = site.errand(&held, 600 * SECOND).unwrap_err().to_string();
    assert!(error.contains("a.join") && error.contains("expired at"), "{error}");
}

#[test]
fn a_certificate_that_is_due_is_asked_for_again_with_the_same_key() {
    let mut site = Site::new(Role::Operator, 1);
    let terms = Terms {
        role: Role::Operator,
        expires: Moment::of(site.now + 24 * 3_600 * SECOND),
        uses: 1,
    };
    site.join.invitation = site.registrar.invite(terms, Moment::of(site.now)).unwrap();
    let mut held = site.hold().unwrap();
    let before = site.enrol(&mut held).unwrap();
    let later = CERTIFICATE_VALIDITY / 2;
    let (key, asked) = asks(site.errand(&held, later).unwrap());
    assert!(matches!(asked, EnrolRequest::Invited { .. }));
    let certificate = site.registrar.enrol(&asked, Moment::of(site.now + later)).unwrap();
    let renewed = key.certified(&site.join.authority(), certificate).unwrap();
    assert_eq!(renewed.identity(), before.identity());
}

#[test]
fn workers_share_a_key_and_keep_nothing_else() {
    let site = Site::new(Role::Worker, 1);
    let (mut one, mut two) = (site.hold().unwrap(), site.hold().unwrap());
    let ids = [site.enrol(&mut one).unwrap().id(), site.enrol(&mut two).unwrap().id()];
    assert_ne!(ids[0], ids[1]);
    asks(site.errand(&site.hold().unwrap(), Duration::ZERO).unwrap());
    assert!(one.kept().is_none());
}

#[test]
fn agents_at_the_same_time_are_different_uses_and_one_too_many_is_told_who_has_the_file() {
    let site = Site::new(Role::Agent, 2);
    let (mut one, mut two) = (site.hold().unwrap(), site.hold().unwrap());
    let ids = [site.enrol(&mut one).unwrap().id(), site.enrol(&mut two).unwrap().id()];
    assert_ne!(ids[0], ids[1]);
    let error = site.hold().unwrap_err();
    let words = error.to_string();
    assert!(matches!(error, KeyringError::Taken { uses: 2, .. }), "{words}");
    assert!(words.contains(&format!("process {}", std::process::id())), "{words}");
    drop(one);
    let again = shows(site.errand(&site.hold().unwrap(), Duration::ZERO).unwrap());
    assert_eq!(again.id(), ids[0], "the first is who it was");
}

#[test]
fn what_others_could_read_or_is_damaged_is_refused_with_what_to_do() {
    let site = Site::new(Role::Operator, 1);
    let credentials = site.enrol(&mut site.hold().unwrap()).unwrap();
    let (file, folder) = (site.file(), site.folder.clone());
    let chmod = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    chmod(&file, 0o644);
    let words = site.hold().unwrap_err().to_string();
    assert!(
        words.contains("expected mode 0600, found 0644") && words.contains("--keyring DIR"),
        "{words}"
    );
    chmod(&file, 0o600);
    chmod(&folder, 0o755);
    let words = Keyring::open(&folder).unwrap_err().to_string();
    assert!(words.contains("expected mode 0700, found 0755"), "{words}");
    chmod(&folder, 0o700);

    let whole = fs::read(&file).unwrap();
    let secret = HEXLOWER.encode(&credentials.key_bytes()[..8]);
    let check = |bytes: &[u8], what: &str| {
        fs::write(&file, bytes).unwrap();
        let error = site.hold().unwrap_err();
        let known = matches!(error, KeyringError::Damaged { .. } | KeyringError::Version { .. });
        let words = format!("{error} {error:?}");
        assert!(known && !words.contains(&secret), "{what}: {words}");
    };
    for length in (0..whole.len()).step_by(7) {
        check(&whole[..length], &format!("cut at {length}"));
    }
    for at in (0..whole.len()).step_by(5).filter(|&at| !whole[at].is_ascii_whitespace()) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        check(&damaged, &format!("byte {at}"));
    }
    let words = site.hold().unwrap_err().to_string();
    assert!(
        words.contains("Remove that file") && words.contains("sardana invite"),
        "{words}"
    );
    fs::write(&file, whole).unwrap();
    site.hold().unwrap();
}

#[test]
fn what_nobody_can_use_any_more_is_removed() {
    let site = Site::new(Role::Agent, 1);
    site.enrol(&mut site.hold().unwrap()).unwrap();
    let (keyring, file) = (site.keyring(), site.file());
    let renewed_until = CERTIFICATE_VALIDITY + HOST_RENEWED_WITHIN;
    keyring.sweep(Moment::of(site.now + renewed_until - 60 * SECOND));
    assert!(file.exists(), "its file has expired, but it could still be renewed");
    keyring.sweep(Moment::of(site.now + renewed_until + 60 * SECOND));
    assert!(!file.exists() && !file.with_extension("lock").exists());
}

#[tokio::test]
async fn the_renewals_of_a_process_that_stays_are_kept() {
    let site = Site::new(Role::Agent, 1);
    let mut held = site.hold().unwrap();
    let rotating = RotatingCredentials::from(site.enrol(&mut held).unwrap());
    held.kept().unwrap().follow(&rotating);
    // With another key, as running processes renew theirs; received later.
    let later = site.now + 60 * SECOND;
    let next = Authority::issue(site.registrar.authority(), Role::Agent, rotating.id()).unwrap();
    rotating.replace(next.clone(), later).unwrap();
    let written = async {
        loop {
            let entry = Entry::read(&site.file(), &site.join).unwrap();
            match entry.certified {
                Some(Certified { credentials, received }) if credentials == next => return received,
                Some(_) | None => tokio::task::yield_now().await,
            }
        }
    };
    let received = tokio::time::timeout(30 * SECOND, written).await.expect("it is written");
    assert_eq!(Moment::of(received), Moment::of(later));
    assert!(
        matches!(site.hold(), Err(KeyringError::Taken { .. })),
        "the process has it as long as it lives"
    );
    drop(rotating);
    let free = async {
        while let Err(error) = site.hold() {
            assert!(matches!(error, KeyringError::Taken { .. }), "{error}");
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(30 * SECOND, free)
        .await
        .expect("then another may have it");
}
