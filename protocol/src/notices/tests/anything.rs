//! Whatever a cloud announces, repeats and withdraws: what holds at each moment, and in the end.

use proptest::prelude::*;

use super::*;
use crate::limits::LOOK_BACK_OFF_MOST;

/// What happens next, and how much later.
#[derive(Clone, Debug)]
enum Next {
    Seen(Vec<Notice>),
    Failed,
    Drained,
    Unapproved(String),
}

fn any_notice() -> impl Strategy<Value = Notice> {
    let what = prop_oneof![
        Just(What::SpotTerminate),
        Just(What::Rebalance),
        Just(What::Preempted),
        Just(What::HostMigrate),
        Just(What::Reboot),
        Just(What::Freeze(Some(Duration::from_secs(5)))),
        Just(What::Freeze(Some(Duration::from_secs(50)))),
    ];
    let due = proptest::option::of(prop_oneof![0_u64..120, 0_u64..4_000]);
    let progress = prop_oneof![3 => Just(Progress::Announced), 1 => Just(Progress::Started)];
    let approval = prop_oneof![Just(Approval::Wanted), Just(Approval::None)];
    ("[a-c]", what, due, progress, approval).prop_map(|(id, what, due, progress, approval)| Notice {
        id,
        what,
        due: due.map(|due| NOW.after(seconds(due))),
        progress,
        approval,
    })
}

fn any_next() -> impl Strategy<Value = (u64, Next)> {
    let next = prop_oneof![
        4 => proptest::collection::vec(any_notice(), 0..3).prop_map(Next::Seen),
        2 => Just(Next::Seen(Vec::new())),
        2 => Just(Next::Failed),
        2 => Just(Next::Drained),
        1 => "[a-c]".prop_map(Next::Unapproved),
    ];
    (0_u64..20, next)
}

/// What an agent makes of the commands.
#[derive(Debug, Default)]
struct Agent {
    away: bool,
    empty: bool,
    by: Option<UtcTime>,
    approved: Vec<String>,
}

impl Agent {
    fn obey(&mut self, now: UtcTime, commands: &[Command]) {
        for (index, command) in commands.iter().enumerate() {
            match command {
                Command::Drain { within, .. } => {
                    let by = within.map(|within| now.after(within));
                    assert!(
                        !self.away || (by.is_some() && !self.empty),
                        "only less time is worth a second word"
                    );
                    // The least time that workers get is from now on.
                    let less = |old: UtcTime| by.is_some_and(|by| by <= old.after(NOTICE_LEAST));
                    assert!(self.by.is_none_or(less), "{:?}, then {by:?}", self.by);
                    (self.away, self.by) = (true, by);
                }
                Command::Return { .. } => {
                    assert!(self.away, "who is here cannot come back");
                    *self = Self::default();
                }
                Command::Approve { id, .. } => {
                    assert!(self.empty, "a worker still needs the time");
                    assert!(!self.approved.contains(id), "{id} was approved");
                    self.approved.push(id.clone());
                }
                Command::Look { after, hang } => {
                    assert_eq!(index + 1, commands.len());
                    assert!(*after >= seconds(1) && *after <= LOOK_BACK_OFF_MOST && *hang <= seconds(60));
                }
                Command::Say(_) => {}
            }
        }
    }
}

fn calls_away(policy: Policy, notices: &[Notice], now: UtcTime) -> bool {
    let mut seen = std::collections::BTreeSet::new();
    let mut first = notices.iter().filter(|notice| seen.insert(notice.id.clone()));
    first.any(|notice| policy.heed(notice, now) == Heed::Drains)
}

proptest! {
    #[test]
    fn workers_are_away_while_something_calls_them_and_back_afterwards(
        cloud in prop_oneof![Just(Cloud::Aws), Just(Cloud::Gce), Just(Cloud::Azure)],
        heeded in prop_oneof![Just(Heeded::Leaves), Just(Heeded::All)],
        script in proptest::collection::vec(any_next(), 0..60),
    ) {
        let policy = policy(cloud, heeded);
        let mut machine = Notices::new(policy);
        let mut agent = Agent::default();
        let mut now = NOW;
        for (later, next) in script {
            now = now.after(seconds(later));
            match next {
                Next::Seen(notices) => {
                    let commands = machine.handle(now, Observation::Seen(notices.clone()));
                    agent.obey(now, &commands);
                    agent.approved.retain(|id| notices.iter().any(|notice| notice.id == *id));
                    prop_assert!(agent.away || !calls_away(policy, &notices, now));
                    let repeated = machine.handle(now, Observation::Seen(notices));
                    prop_assert!(matches!(repeated[..], [Command::Look { .. }]), "{repeated:?}");
                }
                Next::Failed => agent.obey(now, &machine.handle(now, Observation::Failed { why: String::new() })),
                Next::Drained => {
                    agent.empty = agent.away;
                    agent.obey(now, &machine.handle(now, Observation::Drained));
                }
                Next::Unapproved(id) => {
                    agent.approved.retain(|approved| *approved != id);
                    agent.obey(now, &machine.handle(now, Observation::Unapproved { id, why: String::new() }));
                }
            }
        }
        for _ in 0..2 {
            now = now.after(Pace::of(cloud).withdrawn_after);
            agent.obey(now, &machine.handle(now, Observation::Seen(Vec::new())));
        }
        prop_assert!(!agent.away, "nothing calls them away any more");
    }
}
