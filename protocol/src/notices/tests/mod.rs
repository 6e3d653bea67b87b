//! The machine of notices: observations in, commands out.

mod anything;
mod words;

use std::time::Duration;

use super::*;

/// 18 September 2017, 08:20:02.
const NOW: UtcTime = UtcTime::from_secs(1_505_722_802);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn policy(cloud: Cloud, heeded: Heeded) -> Policy {
    let pace = Pace::of(cloud);
    Policy { heeded, pace }
}

fn machine(cloud: Cloud) -> Notices {
    Notices::new(policy(cloud, Heeded::Leaves))
}

fn notice(what: What, due: Option<UtcTime>) -> Notice {
    Notice {
        id: what.to_string(),
        what,
        due,
        progress: Progress::Announced,
        approval: Approval::None,
    }
}

/// Of AWS, for 118 seconds from now.
fn terminate() -> Notice {
    notice(What::SpotTerminate, Some(NOW.after(seconds(118))))
}

fn event(id: &str, what: What, due: u64, approval: Approval) -> Notice {
    Notice {
        id: id.to_owned(),
        approval,
        ..notice(what, Some(NOW.after(seconds(due))))
    }
}

/// What it says to a look, without what people are told and when to look again.
fn acts(commands: &[Command]) -> Vec<&Command> {
    let acts = commands.iter();
    acts.filter(|command| !matches!(command, Command::Say(_) | Command::Look { .. }))
        .collect()
}

fn said(commands: &[Command]) -> Vec<String> {
    let said = commands.iter().filter_map(|command| match command {
        Command::Say(said) => Some(said.to_string()),
        Command::Drain { .. } | Command::Return { .. } | Command::Approve { .. } | Command::Look { .. } => None,
    });
    said.collect()
}

fn see(machine: &mut Notices, after: u64, notices: &[Notice]) -> Vec<Command> {
    machine.handle(NOW.after(seconds(after)), Observation::Seen(notices.to_vec()))
}

fn fail(machine: &mut Notices, after: u64) -> Vec<Command> {
    let why = "no service is there".to_owned();
    machine.handle(NOW.after(seconds(after)), Observation::Failed { why })
}

fn drain(reason: &str, within: Option<u64>) -> Command {
    Command::Drain {
        reason: reason.to_owned(),
        within: within.map(seconds),
    }
}

#[test]
fn a_notice_drains_at_once_and_is_said_once() {
    let mut machine = machine(Cloud::Aws);
    assert_eq!(acts(&see(&mut machine, 0, &[])), [] as [&Command; 0]);
    let commands = see(&mut machine, 0, &[terminate()]);
    let reason = "AWS spot: terminate at 08:22:00 UTC, 118 s left";
    assert_eq!(acts(&commands), [&drain(reason, Some(116))]);
    assert_eq!(said(&commands), [format!("{reason}: the workers leave")]);
    for after in [5, 10, 115] {
        let commands = see(&mut machine, after, &[terminate()]);
        assert_eq!(commands.len(), 1, "nothing is new: {commands:?}");
    }
    assert_eq!(machine.handle(NOW, Observation::Drained), []);
    assert_eq!(see(&mut machine, 117, &[terminate()]).len(), 1);
}

#[test]
fn the_workers_come_back_once_a_notice_is_withdrawn_for_a_while() {
    let mut machine = machine(Cloud::Aws);
    see(&mut machine, 0, &[terminate()]);
    machine.handle(NOW, Observation::Drained);
    let commands = see(&mut machine, 5, &[]);
    assert_eq!(said(&commands), ["withdrawn or over: AWS spot: terminate"]);
    assert!(acts(&commands).is_empty(), "one look may err");
    let back = see(&mut machine, 10, &[]);
    let reason = "withdrawn or over: AWS spot: terminate".to_owned();
    assert_eq!(acts(&back), [&Command::Return { reason }]);
    assert_eq!(see(&mut machine, 15, &[]).len(), 1, "once");
    let again = see(&mut machine, 20, &[terminate()]);
    assert_eq!(acts(&again).len(), 1, "a later one counts anew");
}

#[test]
fn a_withdrawal_that_is_not_seen_again_is_none() {
    let mut machine = machine(Cloud::Aws);
    see(&mut machine, 0, &[terminate()]);
    see(&mut machine, 5, &[]);
    assert!(acts(&fail(&mut machine, 20)).is_empty());
    let commands = see(&mut machine, 25, &[terminate()]);
    assert!(acts(&commands).is_empty(), "they leave already: {commands:?}");
    see(&mut machine, 30, &[]);
    assert!(acts(&see(&mut machine, 34, &[])).is_empty(), "the time counts anew");
    assert_eq!(acts(&see(&mut machine, 35, &[])).len(), 1);
}

#[test]
fn a_warning_drains_only_if_all_is_heeded() {
    let warnings = [
        notice(What::Rebalance, None),
        notice(What::HostMigrate, None),
        notice(What::Freeze(Some(seconds(9))), Some(NOW.after(seconds(600)))),
        notice(What::Freeze(None), None),
        notice(What::EventOther("Tickle".to_owned()), None),
    ];
    for warning in warnings {
        let mut careless = machine(Cloud::Aws);
        let commands = see(&mut careless, 0, std::slice::from_ref(&warning));
        assert!(acts(&commands).is_empty(), "{commands:?}");
        assert!(
            said(&commands)[0].ends_with("only a warning, the workers stay"),
            "{commands:?}"
        );
        let mut careful = Notices::new(policy(Cloud::Aws, Heeded::All));
        assert_eq!(acts(&see(&mut careful, 0, &[warning])).len(), 1);
    }
    let long = notice(What::Freeze(Some(seconds(11))), None);
    assert_eq!(
        acts(&see(&mut machine(Cloud::Azure), 0, &[long])).len(),
        1,
        "no job waits so long"
    );
}

#[test]
fn what_is_announced_for_days_ahead_waits_until_it_is_near() {
    let mut machine = machine(Cloud::Azure);
    let days = event("a", What::Redeploy, 3 * 86_400, Approval::Wanted);
    let commands = see(&mut machine, 0, std::slice::from_ref(&days));
    assert!(acts(&commands).is_empty());
    assert!(
        said(&commands)[0].ends_with("72 h left: the workers stay until it is near"),
        "{commands:?}"
    );
    assert_eq!(see(&mut machine, 86_400, std::slice::from_ref(&days)).len(), 1);
    let near = 3 * 86_400 - 900;
    // Also if the service has stopped answering.
    let commands = fail(&mut machine, near);
    assert!(matches!(acts(&commands)[..], [Command::Drain { .. }]), "{commands:?}");
    assert_eq!(said(&commands).len(), 1);
}

#[test]
fn a_moment_long_past_calls_no_worker_away() {
    let mut machine = machine(Cloud::Aws);
    let stale = notice(What::SpotStop, Some(UtcTime::from_secs(1_000)));
    let commands = see(&mut machine, 0, &[stale]);
    assert!(acts(&commands).is_empty());
    assert!(said(&commands)[0].contains("which is past"), "{commands:?}");
    // Workers that have left for it come back.
    see(&mut machine, 0, &[terminate()]);
    let past = 118 + 600;
    assert!(acts(&see(&mut machine, past, &[terminate()])).is_empty());
    see(&mut machine, past + 1, &[terminate()]);
    assert!(matches!(
        acts(&see(&mut machine, past + 6, &[terminate()]))[..],
        [Command::Return { .. }]
    ));
}

#[test]
fn less_time_hastens_and_more_does_not() {
    let mut machine = machine(Cloud::Azure);
    let reboot = event("a", What::Reboot, 600, Approval::None);
    let preempt = event("b", What::Preempt, 30, Approval::None);
    let later = event("c", What::Terminate, 700, Approval::None);
    see(&mut machine, 0, std::slice::from_ref(&reboot));
    assert!(acts(&see(&mut machine, 1, &[reboot.clone(), later.clone()])).is_empty());
    let commands = see(&mut machine, 2, &[reboot, preempt, later]);
    assert_eq!(
        acts(&commands),
        [&drain("Azure: Preempt at 08:20:32 UTC, 28 s left", Some(26))]
    );
}

#[test]
fn no_time_left_is_no_deadline_and_little_is_some() {
    for (due, within) in [(0, None), (1, Some(1)), (2, Some(1)), (4, Some(2))] {
        let mut machine = machine(Cloud::Aws);
        let notice = notice(What::SpotTerminate, Some(NOW.after(seconds(due))));
        let commands = see(&mut machine, 0, &[notice]);
        assert!(
            matches!(acts(&commands)[..], [Command::Drain { within: found, .. }] if *found == within.map(seconds)),
            "{due}: {commands:?}"
        );
    }
    // Without a moment what is documented counts, from when it was seen first.
    let preempted = notice(What::Preempted, None);
    let commands = see(&mut machine(Cloud::Gce), 0, &[preempted]);
    assert_eq!(acts(&commands), [&drain("GCE: preempted, about 30 s left", Some(28))]);
    let begun = Notice {
        progress: Progress::Started,
        ..notice(What::Reboot, None)
    };
    let commands = see(&mut machine(Cloud::Azure), 0, &[begun]);
    assert_eq!(acts(&commands), [&drain("Azure: Reboot, it has begun", None)]);
}

#[test]
fn an_event_is_approved_once_the_workers_have_left() {
    let mut machine = machine(Cloud::Azure);
    let alone = event("a", What::Preempt, 30, Approval::Wanted);
    let shared = event("b", What::Reboot, 600, Approval::None);
    let freeze = event("c", What::Freeze(Some(seconds(5))), 600, Approval::Wanted);
    let standing = [alone, shared, freeze];
    let before = see(&mut machine, 0, &standing);
    assert!(!before.iter().any(|command| matches!(command, Command::Approve { .. })));
    let approve = Command::Approve {
        id: "a".to_owned(),
        what: "Azure: Preempt".to_owned(),
    };
    assert_eq!(acts(&machine.handle(NOW, Observation::Drained)), [&approve]);
    assert_eq!(see(&mut machine, 1, &standing).len(), 1, "once");
    // What did not arrive is said again at the next look.
    let (id, why) = ("a".to_owned(), "timeout".to_owned());
    let told = machine.handle(NOW, Observation::Unapproved { id, why });
    assert_eq!(said(&told).len(), 1);
    assert_eq!(acts(&see(&mut machine, 2, &standing)), [&approve]);
    // An event that comes while they are away.
    let next = event("d", What::Redeploy, 700, Approval::Wanted);
    let commands = see(&mut machine, 3, &[next]);
    assert!(matches!(acts(&commands)[..], [Command::Approve { id, .. }] if id == "d"));
}

#[test]
fn failures_back_off_and_are_said_once() {
    let mut machine = machine(Cloud::Aws);
    let mut waits = Vec::new();
    let mut told = Vec::new();
    for after in 0..6 {
        let commands = fail(&mut machine, after);
        told.extend(said(&commands));
        let Some(Command::Look { after, .. }) = commands.last() else {
            panic!("it looks again: {commands:?}");
        };
        waits.push(after.as_secs());
    }
    assert_eq!(waits, [5, 10, 20, 20, 20, 20]);
    assert_eq!(told, ["notices cannot be seen for now: no service is there"]);
    assert_eq!(said(&see(&mut machine, 9, &[])), ["notices are seen again"]);
    fail(&mut machine, 10);
    assert!(
        said(&see(&mut machine, 11, &[])).is_empty(),
        "one failure is not worth a word"
    );
}

#[test]
fn a_look_that_waits_for_the_end_of_a_withdrawal_hangs_no_longer() {
    let mut machine = machine(Cloud::Gce);
    let look = |commands: Vec<Command>| match commands.last() {
        Some(Command::Look { hang, .. }) => hang.as_secs(),
        other => panic!("{other:?}"),
    };
    let preempted = notice(What::HostTerminate, None);
    assert_eq!(look(see(&mut machine, 0, &[preempted])), 60);
    assert_eq!(look(see(&mut machine, 1, &[])), 5);
    assert_eq!(look(see(&mut machine, 4, &[])), 2);
    assert_eq!(look(see(&mut machine, 6, &[])), 60);
}

#[test]
fn two_notices_of_one_name_are_one() {
    let mut machine = machine(Cloud::Azure);
    let one = event("a", What::Reboot, 600, Approval::None);
    let two = event("a", What::Preempt, 30, Approval::None);
    see(&mut machine, 0, &[one.clone(), two.clone()]);
    assert_eq!(see(&mut machine, 1, &[one, two]).len(), 1);
}
