//! Any use of a catalogue, compared with a map in memory.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sardana_storage::catalogue::{Batch, Catalogue, Found, limits};

const TABLES: [&str; 3] = ["a", "a-b", "b"];

#[derive(Clone, Debug)]
enum Act {
    /// A batch: table, key, and the length of the value, or none to remove.
    Commit(Vec<(usize, Vec<u8>, Option<usize>)>),
    Scan(usize, Vec<u8>),
    Reopen,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop::collection::vec(0_u8..3, 0..3),
        1 => Just(vec![255; limits::KEY_BYTES]),
    ]
}

fn len() -> impl Strategy<Value = Option<usize>> {
    prop_oneof![
        3 => Just(None),
        6 => (0_usize..200).prop_map(Some),
        1 => (0..=limits::VALUE_BYTES).prop_map(Some),
        1 => (limits::VALUE_BYTES / 16 - 1..limits::VALUE_BYTES / 16 + 2).prop_map(Some),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let changes = prop::collection::vec((0..TABLES.len(), key(), len()), 1..4);
    prop_oneof![
        6 => changes.prop_map(Act::Commit),
        3 => (0..TABLES.len(), key()).prop_map(|(table, from)| Act::Scan(table, from)),
        1 => Just(Act::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn it_is_a_map_that_outlives_its_process(acts in prop::collection::vec(act(), 1..40)) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("catalogue");
        let mut catalogue = Catalogue::open(&path).unwrap().catalogue;
        let mut maps = TABLES.map(|_| BTreeMap::<Vec<u8>, Vec<u8>>::new());
        let mut commits = 0;
        for (number, act) in acts.into_iter().enumerate() {
            match act {
                Act::Commit(changes) => {
                    commits += 1;
                    let mut batch = Batch::new();
                    for (table, key, len) in changes {
                        let value = len.map(|len| vec![u8::try_from(number).unwrap(); len]);
                        batch = match &value {
                            Some(value) => batch.put(TABLES[table], &key, value),
                            None => batch.remove(TABLES[table], &key),
                        };
                        match value {
                            Some(value) => drop(maps[table].insert(key, value)),
                            None => drop(maps[table].remove(&key)),
                        }
                    }
                    prop_assert_eq!(catalogue.commit(&batch).unwrap(), commits);
                }
                Act::Scan(table, from) => {
                    let found = catalogue.table(TABLES[table]).unwrap().scan(&from, 5).unwrap();
                    let expected: Vec<_> = maps[table].range(from..).take(5).map(|(k, v)| (k.clone(), v.clone())).collect();
                    prop_assert_eq!(found, expected);
                }
                Act::Reopen => {
                    drop(catalogue);
                    let opened = Catalogue::open(&path).unwrap();
                    prop_assert_eq!(opened.found, if commits == 0 { Found::Fresh } else { Found::Used });
                    catalogue = opened.catalogue;
                    prop_assert_eq!(catalogue.commits(), commits);
                }
            }
            for (name, map) in TABLES.iter().zip(&maps) {
                let table = catalogue.table(name).unwrap();
                prop_assert_eq!(table.len(), map.len() as u64);
                for (key, value) in map {
                    let found = table.get(key).unwrap();
                    prop_assert_eq!(found.as_ref(), Some(value));
                }
            }
        }
    }
}
