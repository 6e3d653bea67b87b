//! Any use of a store, compared with a simple model of it.

use proptest::prelude::*;

use crate::acting::{Act, Acting, PIECES, With};
use crate::random::rounds;

fn pieces() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(0..PIECES, 1..10)
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (0..2_u64, pieces()).prop_map(|(pin, pieces)| Act::Put { pin, pieces }),
        5 => Just(Act::Sync),
        5 => (0..9_u64, pieces()).prop_map(|(step, pieces)| Act::Commit { step, pieces }),
        2 => any::<u64>().prop_map(Act::Delete),
        1 => (0..2_u64).prop_map(Act::Unpin),
        2 => Just(Act::Collect),
        1 => (0..PIECES).prop_map(Act::Heal),
        1 => prop_oneof![
            Just(With::Index),
            Just(With::Nothing),
            (0..30_u64).prop_map(With::Failing),
        ]
        .prop_map(Act::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: u32::try_from(rounds("SARDANA_STORE_MODELS", 300)).unwrap(),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn it_keeps_what_it_has_said(acts in prop::collection::vec(act(), 1..60)) {
        let mut acting = Acting::new();
        for act in acts {
            prop_assert!(acting.act(&act));
            acting.check();
        }
        // All that is needed is whole, down to the last header.
        acting.open(With::Nothing).unwrap();
        acting.check();
        let mut bytes = 0;
        let verified = acting.store().verify(&mut |progress| bytes = progress.done_bytes);
        prop_assert!(verified.harmed.is_empty() && verified.bytes == bytes, "{verified:?}");
    }
}
