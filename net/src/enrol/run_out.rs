//! The decision on certificates that have run out: whether their holders get the next one without being invited again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use sardana_protocol::words::{JobId, WorkerId};

use super::limits::{GONE_KEPT, HOST_RENEWED_WITHIN, MAX_GONE, WORKER_RENEWED_WITHIN};
use crate::trust::limits::CERTIFICATE_VALIDITY;
use crate::trust::{Holder, KeyDigest, Moment, PeerIdentity, Role};

/// Why a certificate that has run out is not renewed. The process that asked is told so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunOutRefusal {
    /// It is of another job.
    #[error(
        "the certificate that has run out is of {found}, expected one of job {expected}; see whether the address is the right one"
    )]
    OtherJob {
        /// The coordinator's.
        expected: JobId,
        /// The holder that it names.
        found: PeerIdentity,
    },
    /// The holders of its role have another way.
    #[error(
        "the certificate of an {role} is not renewed: its join file serves until it expires; use that, or ask for a new one: sardana \
         invite --role {role}"
    )]
    ByJoinFile {
        /// Which role.
        role: Role,
    },
    /// A coordinator makes its own.
    #[error("the certificate of a {role} is never renewed")]
    Never {
        /// Which role.
        role: Role,
    },
    /// The process that asks may have found the certificate.
    #[error("the request is not made with the key of the certificate that has run out")]
    OtherKey,
    /// It ran out long ago.
    #[error(
        "the certificate of {holder} ran out at {ended}, and it is {now}: it is renewed within {} hours after its end; start the process \
         anew, with a new join file if it had one: sardana invite (or see whether the clocks agree)", .within.as_secs() / 3_600
    )]
    TooLate {
        /// The holder that it names.
        holder: PeerIdentity,
        /// When it ran out.
        ended: Moment,
        /// The coordinator's clock.
        now: Moment,
        /// For how long after its end it was renewed.
        within: Duration,
    },
    /// It has left, was dismissed, or was seen to end.
    #[error("worker {worker} has left the job, was left out of it, or was seen to end: start a new worker")]
    Gone {
        /// Which worker.
        worker: WorkerId,
    },
    /// So many are gone that it is not known any more which are not.
    #[error("the certificate of worker {worker} is older than what is remembered of those that left: start a new worker")]
    Forgotten {
        /// Which worker.
        worker: WorkerId,
    },
}

/// How long after its end a certificate of `role` is renewed.
const fn renewed_within(role: Role) -> Result<Duration, RunOutRefusal> {
    match role {
        Role::Worker => Ok(WORKER_RENEWED_WITHIN),
        Role::Agent | Role::Checkpoint => Ok(HOST_RENEWED_WITHIN),
        Role::Operator => Err(RunOutRefusal::ByJoinFile { role }),
        Role::Coordinator => Err(RunOutRefusal::Never { role }),
    }
}

/// Whether a certificate of `role` that ends at `ends` is still renewed at `now`.
pub(super) fn is_renewed(role: Role, ends: Moment, now: Moment) -> bool {
    renewed_within(role).is_ok_and(|within| now.seconds() <= ends.seconds().saturating_add(within.as_secs()))
}

/// Whether the holder of a certificate of `job` gets the next one at `now`, for the key that it asks with.
pub(super) fn decide(holder: Holder, job: JobId, asked: KeyDigest, gone: &Gone, now: Moment) -> Result<(), RunOutRefusal> {
    let Holder { identity, key, ends } = holder;
    if identity.job != job {
        return Err(RunOutRefusal::OtherJob {
            expected: job,
            found: identity,
        });
    }
    let within = renewed_within(identity.role)?;
    if key != asked {
        return Err(RunOutRefusal::OtherKey);
    }
    if !is_renewed(identity.role, ends, now) {
        return Err(RunOutRefusal::TooLate {
            holder: identity,
            ended: ends,
            now,
            within,
        });
    }
    if identity.role == Role::Worker {
        gone.check(WorkerId::new(identity.id), ends)?;
    }
    Ok(())
}

/// The workers that get no further certificate.
#[derive(Default)]
pub(super) struct Gone {
    since: BTreeMap<WorkerId, Moment>,
    by_age: BTreeSet<(Moment, WorkerId)>,
    /// When the last worker went that is forgotten, although a certificate of its could still be renewed.
    forgotten: Option<Moment>,
}

/// Only how many: thousands of names tell a person nothing.
impl fmt::Debug for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.since.len().max(self.by_age.len());
        write!(f, "{known} of at most {MAX_GONE}")
    }
}

impl Gone {
    /// `worker` has gone.
    pub(super) fn note(&mut self, worker: WorkerId, now: Moment) {
        if self.since.contains_key(&worker) {
            return;
        }
        self.since.insert(worker, now);
        self.by_age.insert((now, worker));
        while let Some(&(at, oldest)) = self.by_age.first() {
            let is_needed = now.seconds() <= at.seconds().saturating_add(GONE_KEPT.as_secs());
            if is_needed && self.since.len() <= MAX_GONE {
                return;
            }
            if is_needed {
                self.forgotten = self.forgotten.max(Some(at));
            }
            self.by_age.pop_first();
            self.since.remove(&oldest);
        }
    }

    /// `worker` is there after all.
    pub(super) fn forgive(&mut self, worker: WorkerId) {
        if let Some(at) = self.since.remove(&worker) {
            self.by_age.remove(&(at, worker));
        }
    }

    fn check(&self, worker: WorkerId, ends: Moment) -> Result<(), RunOutRefusal> {
        if self.since.contains_key(&worker) {
            return Err(RunOutRefusal::Gone { worker });
        }
        // A worker that went by then had no certificate that ends later.
        let doubtful = |at: Moment| ends.seconds() <= at.seconds().saturating_add(CERTIFICATE_VALIDITY.as_secs());
        if self.forgotten.is_some_and(doubtful) {
            return Err(RunOutRefusal::Forgotten { worker });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId::new([7; 16]);
    const KEY: KeyDigest = KeyDigest::new([1; 16]);
    const END: Moment = Moment::new(1_800_000_000);

    fn holder(role: Role, id: u64) -> Holder {
        let identity = PeerIdentity { job: JOB, role, id };
        Holder {
            identity,
            key: KEY,
            ends: END,
        }
    }

    fn after(duration: Duration) -> Moment {
        Moment::new(END.seconds() + duration.as_secs())
    }

    fn decided(role: Role, now: Moment) -> Result<(), RunOutRefusal> {
        decide(holder(role, 1), JOB, KEY, &Gone::default(), now)
    }

    #[test]
    fn each_role_is_renewed_up_to_its_bound_and_no_second_longer() {
        let second = Duration::from_secs(1);
        for (role, within) in [
            (Role::Worker, WORKER_RENEWED_WITHIN),
            (Role::Agent, HOST_RENEWED_WITHIN),
            (Role::Checkpoint, HOST_RENEWED_WITHIN),
        ] {
            for good in [Moment::new(0), END, after(within)] {
                assert_eq!(decided(role, good), Ok(()), "{role} at {good}");
            }
            let error = decided(role, after(within + second)).unwrap_err();
            assert!(matches!(error, RunOutRefusal::TooLate { .. }), "{error}");
            let words = error.to_string();
            assert!(words.contains("ran out at") && words.contains("sardana invite"), "{words}");
        }
        let error = decided(Role::Operator, END).unwrap_err();
        assert!(error.to_string().contains("serves until it expires"), "{error}");
        assert!(matches!(decided(Role::Coordinator, END), Err(RunOutRefusal::Never { .. })));
    }

    #[test]
    fn another_job_or_key_gets_nothing() {
        let gone = Gone::default();
        let error = decide(holder(Role::Worker, 1), JobId::new([8; 16]), KEY, &gone, END);
        assert!(matches!(error, Err(RunOutRefusal::OtherJob { .. })), "{error:?}");
        let error = decide(holder(Role::Worker, 1), JOB, KeyDigest::new([2; 16]), &gone, END);
        assert_eq!(error, Err(RunOutRefusal::OtherKey));
    }

    #[test]
    fn who_is_gone_is_not_renewed_unless_it_is_there_after_all() {
        let mut gone = Gone::default();
        let worker = WorkerId::new(1);
        let decided = |gone: &Gone, role| decide(holder(role, 1), JOB, KEY, gone, END);
        gone.note(worker, END);
        gone.note(worker, after(GONE_KEPT));
        assert_eq!(decided(&gone, Role::Worker), Err(RunOutRefusal::Gone { worker }));
        assert_eq!(decided(&gone, Role::Agent), Ok(()), "another role's ids are others");
        gone.forgive(worker);
        assert_eq!(decided(&gone, Role::Worker), Ok(()));
        assert!(gone.by_age.is_empty());
    }

    #[test]
    fn who_is_gone_is_remembered_while_it_matters_in_bounded_memory() {
        let mut gone = Gone::default();
        gone.note(WorkerId::new(1), END);
        gone.note(WorkerId::new(2), after(GONE_KEPT));
        assert_eq!(gone.since.len(), 2);
        gone.note(WorkerId::new(3), after(GONE_KEPT + Duration::from_secs(1)));
        assert!(
            !gone.since.contains_key(&WorkerId::new(1)),
            "no certificate of its could be renewed"
        );
        assert_eq!(gone.forgotten, None);

        let mut gone = Gone::default();
        for id in 0..=MAX_GONE as u64 {
            gone.note(WorkerId::new(id), END);
        }
        assert_eq!((gone.since.len(), gone.by_age.len()), (MAX_GONE, MAX_GONE));
        // Nothing is known of this worker, nor of any other that had its certificate by then.
        for id in [0, u64::MAX] {
            let error = decide(holder(Role::Worker, id), JOB, KEY, &gone, END);
            let worker = WorkerId::new(id);
            assert_eq!(error, Err(RunOutRefusal::Forgotten { worker }));
        }
        let later = Holder {
            ends: after(CERTIFICATE_VALIDITY + Duration::from_secs(1)),
            ..holder(Role::Worker, u64::MAX)
        };
        assert_eq!(decide(later, JOB, KEY, &gone, END), Ok(()));
    }
}
