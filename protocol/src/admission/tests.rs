//! What is refused, and with which words.

use super::*;
use crate::job::{Compression, Order};
use crate::limits::MAX_GPU_BYTES;
use crate::lineage::Lineage;
use crate::memory::GradientMemory;
use crate::samples;
use crate::state::StateHash;
use crate::words::{Step, WorkerId};

const GRADIENT: u64 = 1 << 30;

const JOB: JobId = JobId::new([1; 16]);

/// Makes one part of a hello differ.
type Change = fn(&mut WorkerHello, StateHash);

fn hello() -> WorkerHello {
    WorkerHello {
        memory: GradientMemory::unbounded(GRADIENT),
        call: Call {
            process: [7; 16],
            count: 3,
        },
        ..samples::hello(JobId::new([1; 16]), WorkerId::new(1))
    }
}

#[test]
fn each_part_of_the_identity_is_compared_and_named() {
    let job = hello();
    let other = StateHash::of(b"y");
    let admitted = |identity, found: &WorkerHello| admit(JOB, identity, Generation::NONE, Acquaintance::None, found);
    let changes: Vec<(&str, Change)> = vec![
        ("name", |h, _| h.identity.spec.name = "other".to_owned()),
        ("seed", |h, _| h.identity.spec.seed = 2),
        ("shards", |h, _| h.identity.spec.shards = 4),
        ("steps", |h, _| h.identity.spec.steps = Step::new(11)),
        ("samples", |h, _| h.identity.spec.samples = 63),
        ("batch", |h, _| h.identity.spec.batch = 8),
        ("order", |h, _| h.identity.spec.order = Order::Fast),
        ("model", |h, y| h.identity.fingerprint.tensors = y),
        ("processor", |h, _| h.identity.fingerprint.processor = "z".to_owned()),
        ("libraries", |h, _| h.identity.fingerprint.libraries = "z".to_owned()),
        ("program", |h, y| h.identity.fingerprint.program = y),
        ("initial state", |h, y| h.identity.state_zero = y),
        ("probe", |h, y| h.identity.fingerprint.probe = y),
    ];
    for (name, change) in changes {
        let mut found = hello();
        change(&mut found, other);
        let refusal = admitted(Some(&job.identity), &found).unwrap_err().to_string();
        assert!(
            refusal.contains(name) && refusal.contains("expected") && refusal.contains("found"),
            "{name}: {refusal}"
        );
    }
    assert_eq!(admitted(Some(&job.identity), &hello()), Ok(()));
    assert_eq!(admitted(None, &hello()), Ok(()));
}

#[test]
fn another_device_is_welcome_as_long_as_it_computes_the_same() {
    let job = hello();
    let on = |device: &str, probe: &[u8]| {
        let mut found = hello();
        found.identity.fingerprint.device = device.to_owned();
        found.identity.fingerprint.probe = StateHash::of(probe);
        admit(JOB, Some(&job.identity), Generation::NONE, Acquaintance::None, &found)
    };
    assert_eq!(on("cuda, a GPU", b"x"), Ok(()));
    let refused = on("cuda, a GPU", b"y").unwrap_err();
    assert!(matches!(refused, Refusal::OtherBits { .. }), "{refused:?}");
    let words = refused.to_string();
    for part in [
        "it computes on cuda, a GPU, the job's first worker on cpu: its first update gave other bits".to_owned(),
        format!(
            "expected the state {}, found {}). Of what decides bits it alone has cuda, a GPU, the first alone cpu; make that alike, run it",
            StateHash::of(b"x"),
            StateHash::of(b"y")
        ),
    ] {
        assert!(words.contains(&part), "{words}");
    }
    let same_device = on("cpu", b"y").unwrap_err();
    assert!(matches!(same_device, Refusal::Differs { what: PROBE, .. }), "{same_device:?}");
    // Where more than the bits differs, that is the reason.
    let mut other_program = hello();
    (
        other_program.identity.fingerprint.device,
        other_program.identity.fingerprint.program,
    ) = ("cuda".to_owned(), StateHash::of(b"y"));
    let refused = admit(JOB, Some(&job.identity), Generation::NONE, Acquaintance::None, &other_program);
    assert!(
        matches!(refused, Err(Refusal::Differs { what: "the program", .. })),
        "{refused:?}"
    );
}

#[test]
fn each_compression_is_another_job() {
    let compressed = |compression| {
        let mut found = hello();
        (found.identity.spec.order, found.identity.spec.compression) = (Order::Fast, compression);
        found
    };
    let all = [Compression::None, Compression::Bf16, Compression::F16];
    for (job, found) in all.into_iter().flat_map(|job| all.map(|found| (job, found))) {
        let (job, found) = (compressed(job), compressed(found));
        let outcome = admit(JOB, Some(&job.identity), Generation::NONE, Acquaintance::None, &found);
        if job == found {
            assert_eq!(outcome, Ok(()));
            continue;
        }
        let refusal = outcome.unwrap_err().to_string();
        let words = [
            "the compression between workers".to_owned(),
            format!("expected {}", job.identity.spec.compression),
            format!("found {}", found.identity.spec.compression),
        ];
        assert!(words.iter().all(|word| refusal.contains(word)), "{refusal}");
    }
}

#[test]
fn another_job_and_senseless_hellos_are_refused() {
    let refused = |change: fn(&mut WorkerHello)| {
        let mut found = hello();
        change(&mut found);
        admit(JOB, None, Generation::NONE, Acquaintance::None, &found).unwrap_err()
    };
    assert!(matches!(refused(|h| h.job = JobId::new([2; 16])), Refusal::OtherJob { .. }));
    let senseless: [fn(&mut WorkerHello); 8] = [
        |h| h.identity.fingerprint.device = "x".repeat(MAX_DEVICE_BYTES + 1),
        |h| h.identity.spec.compression = Compression::F16,
        |h| h.shard_capacity = 0,
        |h| h.memory.gradient = 0,
        |h| h.memory.gradient = u64::MAX,
        |h| h.identity.spec.shards = 0,
        |h| h.identity.spec.shards = u32::MAX,
        |h| h.introduction.standing.step = Step::new(11),
    ];
    for change in senseless {
        let refusal = refused(change);
        assert!(matches!(refusal, Refusal::Senseless { .. }), "{refusal}");
    }
    let fenced = refused(|h| h.introduction.generation = Generation::NONE.next());
    assert!(matches!(fenced, Refusal::Fenced { .. }));
}

#[test]
fn who_comes_with_too_little_memory_is_refused_with_the_sizes() {
    let has = |gradients: u64| {
        let mut found = hello();
        (found.identity.spec.shards, found.shard_capacity) = (4_096, 4_096);
        found.memory.room = gradients * GRADIENT;
        found
    };
    let words = has_memory(&has(64), 8).unwrap_err().to_string();
    assert!(
        words.contains("K = 4096") && words.contains("N = 8") && words.contains("512 GiB"),
        "{words}"
    );
    assert_eq!(has_memory(&has(514), 8), Ok(()));
    assert_eq!(has_memory(&has(64), u32::MAX), Ok(()), "others may come");
    assert_eq!(has_memory(&has(3), 1), Ok(()), "one that is alone adds as it computes");
    assert!(has_memory(&has(2), u32::MAX).is_err());
    // A worker that takes part already is not sent away because a coordinator was started with other numbers.
    let mut member = has(64);
    member.introduction.generation = Generation::NONE.next();
    assert_eq!(has_memory(&member, 8), Ok(()));
}

#[test]
fn who_was_greeted_by_another_life_of_the_same_number_fences_this_one() {
    let own = Incarnation::new(3);
    let newest = Generation::new(own, 4);
    let says = |incarnation, generation, acquaintance| {
        let mut found = hello();
        found.introduction.incarnation = Incarnation::new(incarnation);
        found.introduction.generation = generation;
        admit(JOB, None, newest, acquaintance, &found)
    };
    let fenced = Err(Refusal::Fenced { own, by: own });
    let older = Generation::new(Incarnation::new(2), 9);
    assert_eq!(says(3, older, Acquaintance::Greeted), Ok(()));
    assert_eq!(says(3, older, Acquaintance::None), fenced);
    assert_eq!(says(2, newest, Acquaintance::None), fenced);
    assert_eq!(says(2, older, Acquaintance::None), Ok(()), "it comes from an earlier life");
    assert_eq!(
        says(0, Generation::NONE, Acquaintance::None),
        Ok(()),
        "it knows no coordinator"
    );
}

/// Else no life could ever be above it, and the job could not go on.
#[test]
fn a_number_that_no_coordinator_can_have_fences_none() {
    let says = |incarnation| {
        let mut found = hello();
        found.introduction.incarnation = Incarnation::new(incarnation);
        admit(JOB, None, Generation::NONE, Acquaintance::None, &found).unwrap_err()
    };
    assert!(matches!(says(MAX_LIVES_AHEAD), Refusal::Fenced { .. }));
    for found in [MAX_LIVES_AHEAD + 1, u64::MAX] {
        assert!(matches!(says(found), Refusal::Senseless { .. }), "{found}");
    }
}

/// A joiner follows sums of generations that it is no member of; but none can be newer than the coordinator's.
#[test]
fn a_state_that_a_generation_to_come_has_led_to_is_refused() {
    let g = |count| Generation::new(Incarnation::new(2), count);
    let says = |last, newest| {
        let mut found = hello();
        found.identity.spec.order = Order::Fast;
        found.introduction.standing.lineage = Lineage::of(Order::Fast, last);
        admit(JOB, None, newest, Acquaintance::None, &found)
    };
    assert_eq!(says(g(4), g(4)), Ok(()));
    assert_eq!(
        says(g(4), Generation::new(Incarnation::new(3), 0)),
        Ok(()),
        "of an earlier life"
    );
    let refusal = says(g(5), g(4)).unwrap_err();
    assert!(
        matches!(refusal, Refusal::Senseless { .. }),
        "no coordinator is fenced by it: {refusal}"
    );
}

#[test]
fn only_a_later_call_of_the_same_process_takes_a_connection_over() {
    let present = hello().call;
    let attempt = |process, count| {
        let call = Call { process, count };
        take_over(present, &WorkerHello { call, ..hello() })
    };
    assert_eq!(attempt([7; 16], 4), Ok(()));
    assert_eq!(attempt([7; 16], u64::MAX), Ok(()));
    let refused = Err(Refusal::Duplicate(hello().worker));
    assert_eq!(attempt([7; 16], 3), refused, "a hello that is said again, word for word");
    assert_eq!(attempt([7; 16], 2), refused, "one that was given up, and comes late");
    assert_eq!(attempt([8; 16], 4), refused, "another process with the same credentials");
    assert_eq!(attempt([0; 16], u64::MAX), refused);
}

#[test]
fn a_worker_that_trains_and_a_groups_are_told_what_the_job_is() {
    let training = hello();
    let mut group = hello();
    group.identity.spec = JobSpec::group("test".to_owned());
    group.memory = GradientMemory::unbounded(1);
    let refused = |job: &WorkerHello, found: &WorkerHello| {
        let admitted = admit(JOB, Some(&job.identity), Generation::NONE, Acquaintance::None, found);
        admitted.unwrap_err().to_string()
    };
    let both = "sardana::train, group: sardana::group::join) differs from the job's";
    let of_a_group = refused(&group, &training);
    assert!(
        of_a_group.contains(both) && of_a_group.contains("expected group, found training"),
        "{of_a_group}"
    );
    let of_a_trainer = refused(&training, &group);
    assert!(of_a_trainer.contains("expected training, found group"), "{of_a_trainer}");
    assert_eq!(
        admit(JOB, Some(&group.identity), Generation::NONE, Acquaintance::None, &group),
        Ok(())
    );
    assert_eq!(has_memory(&group, 1_024), Ok(()));
    // No shards and yet something to train.
    for change in [
        |h: &mut WorkerHello| h.identity.spec.steps = Step::new(1),
        |h: &mut WorkerHello| h.identity.spec.order = Order::Exact,
    ] {
        let mut found = group.clone();
        change(&mut found);
        let refusal = admit(JOB, None, Generation::NONE, Acquaintance::None, &found);
        assert!(matches!(refusal, Err(Refusal::Senseless { .. })), "{refusal:?}");
    }
}

#[test]
fn a_newcomer_that_can_never_have_what_it_needs_of_its_gpu_is_refused_with_both_sizes() {
    let memory = DeviceMemory {
        needed: 12 << 30,
        total: 10 << 30,
        sharers: 1,
        ..DeviceMemory::default()
    };
    let mut found = WorkerHello {
        device_memory: Some(memory.named("GPU-a")),
        ..hello()
    };
    let words = Refusal::from(fits_device(&found).unwrap_err()).to_string();
    assert!(
        words.contains("needs 12 GiB") && words.contains("GPU-a, has 10 GiB"),
        "{words}"
    );
    // A member that comes again has what it has.
    let formed = Generation::new(Incarnation::new(1), 1);
    found.introduction.generation = formed;
    assert_eq!(fits_device(&found), Ok(()));
    assert_eq!(fits_device(&hello()), Ok(()), "on processors");
    let admitted = admit(JOB, None, formed, Acquaintance::None, &hello());
    assert_eq!(admitted, Ok(()));
    found = hello();
    let endless = DeviceMemory {
        gpu: "x".repeat(MAX_GPU_BYTES + 1),
        ..DeviceMemory::default()
    };
    found.device_memory = Some(endless);
    let refused = admit(JOB, None, formed, Acquaintance::None, &found);
    assert!(matches!(refused, Err(Refusal::Senseless { .. })), "{refused:?}");
}
