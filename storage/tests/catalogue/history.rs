//! A history of commits that is a function of their number: so that any process can say what must be there after so many.

use std::collections::BTreeMap;

use sardana_storage::catalogue::{Batch, Catalogue, CatalogueError, limits};

use crate::random::Random;

pub(crate) type Contents = BTreeMap<(String, Vec<u8>), Vec<u8>>;

const TABLES: [&str; 3] = ["jobs", "incarnations", "pieces"];

/// Table, key, and a value or none.
type Change = (&'static str, Vec<u8>, Option<Vec<u8>>);

/// The changes of the `number`th commit: some small, some long, some removals, always over several tables.
fn changes(number: u64) -> Vec<Change> {
    let mut random = Random::new(number);
    let mut value = |most: u64| {
        let len = random.within(1..most);
        (0..len).map(|_| random.next().to_le_bytes()[0]).collect::<Vec<u8>>()
    };
    let long = match number % 40 {
        7 => limits::VALUE_BYTES as u64,
        3 | 13 | 23 => 12_000,
        _ => 300,
    };
    let mut changes = vec![
        ("jobs", b"newest".to_vec(), Some(number.to_le_bytes().to_vec())),
        ("incarnations", number.to_be_bytes().to_vec(), Some(value(60))),
        ("pieces", (number % 30).to_be_bytes().to_vec(), Some(value(long))),
    ];
    if number > 50 {
        changes.push(("incarnations", (number - 50).to_be_bytes().to_vec(), None));
    }
    if number.is_multiple_of(11) {
        changes.push(("pieces", (number % 7).to_be_bytes().to_vec(), None));
    }
    changes
}

pub(crate) fn batch(number: u64) -> Batch {
    changes(number)
        .into_iter()
        .fold(Batch::new(), |batch, (table, key, value)| match value {
            Some(value) => batch.put(table, &key, &value),
            None => batch.remove(table, &key),
        })
}

/// What is there after `commits` commits.
pub(crate) fn after(commits: u64) -> Contents {
    let mut contents = Contents::new();
    for (table, key, value) in (1..=commits).flat_map(changes) {
        match value {
            Some(value) => drop(contents.insert((table.to_owned(), key), value)),
            None => drop(contents.remove(&(table.to_owned(), key))),
        }
    }
    contents
}

/// Makes the commits after those that `catalogue` has had, up to `last`. Calls `acknowledged` after each.
pub(crate) fn go_on(catalogue: &Catalogue, last: u64, mut acknowledged: impl FnMut(u64)) -> Result<(), CatalogueError> {
    for number in catalogue.commits() + 1..=last {
        assert_eq!(catalogue.commit(&batch(number))?, number);
        acknowledged(number);
    }
    Ok(())
}

/// All that `catalogue` has.
pub(crate) fn read(catalogue: &Catalogue) -> Result<Contents, CatalogueError> {
    let mut contents = Contents::new();
    for name in TABLES {
        let table = catalogue.table(name)?;
        let (mut from, mut count) = (Vec::new(), 0);
        loop {
            let page = table.scan(&from, 16)?;
            let Some((last, _)) = page.last() else { break };
            from = [last.as_slice(), &[0]].concat();
            count += page.len() as u64;
            contents.extend(page.into_iter().map(|(key, value)| ((name.to_owned(), key), value)));
        }
        assert_eq!(table.len(), count, "{name}");
    }
    Ok(contents)
}
