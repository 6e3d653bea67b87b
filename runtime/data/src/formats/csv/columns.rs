//! Which columns of a table are the input, and which the target.

use std::fmt;
use std::path::Path;

use csv::ByteRecord;

use super::{CsvOptions, excerpt};
use crate::DataError;

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Column {
    /// The one that the header calls so.
    Named(String),
    /// The one with this number, from 0.
    Number(usize),
}

impl From<&str> for Column {
    fn from(name: &str) -> Self {
        Self::Named(name.to_owned())
    }
}

impl From<String> for Column {
    fn from(name: String) -> Self {
        Self::Named(name)
    }
}

impl From<usize> for Column {
    fn from(number: usize) -> Self {
        Self::Number(number)
    }
}

/// The numbers of the columns that are used. None is both input and target.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    pub(super) inputs: Vec<usize>,
    pub(super) targets: Vec<usize>,
}

impl fmt::Display for Columns {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inputs, targets } = self;
        write!(formatter, "the columns {inputs:?} as input, {targets:?} as target")
    }
}

impl Columns {
    /// What `options` choose of `count` columns.
    pub(super) fn choose(
        file: &Path,
        names: Option<&ByteRecord>,
        count: usize,
        options: &CsvOptions,
    ) -> Result<Self, DataError> {
        let refusal = |expected: String, found: String| DataError::malformed(file, 0, expected, found);
        let last = count.checked_sub(1);
        let last = last.ok_or_else(|| refusal("a line of cells".to_owned(), "an empty file".to_owned()))?;
        let find = |column: &Column| find(column, names, count).map_err(|found| refusal(column.to_string(), found));
        let all = |columns: &Vec<Column>| columns.iter().map(find).collect::<Result<Vec<_>, _>>();
        let targets = options.targets.as_ref().map_or(Ok(vec![last]), all)?;
        let others = || (0..count).filter(|column| !targets.contains(column)).collect();
        let inputs = options.inputs.as_ref().map_or_else(|| Ok(others()), all)?;
        if let Some(column) = inputs.iter().find(|&column| targets.contains(column)) {
            let expected = "columns that are input or target, not both".to_owned();
            return Err(refusal(
                expected,
                format!("column {column} as both; say which are `inputs` and which `targets`"),
            ));
        }
        if inputs.is_empty() {
            return Err(refusal(
                "a column that is the input".to_owned(),
                "none beside the target".to_owned(),
            ));
        }
        Ok(Self { inputs, targets })
    }
}

/// The number of a column, or what there is in its place.
fn find(column: &Column, names: Option<&ByteRecord>, count: usize) -> Result<usize, String> {
    match column {
        &Column::Number(number) if number < count => Ok(number),
        Column::Number(_) => Err(format!("columns 0 to {}", count - 1)),
        Column::Named(name) => {
            let names = names.ok_or("a file without a header, in which columns have numbers only")?;
            let mut found = (0..).zip(names).filter(|(_, found)| *found == name.as_bytes());
            match (found.next(), found.next()) {
                (Some((number, _)), None) => Ok(number),
                (Some((one, _)), Some((other, _))) => Err(format!("two, {one} and {other}; say which by its number")),
                (None, _) => Err(format!("the columns {}", listed(names))),
            }
        }
    }
}

/// The first few names of a header.
fn listed(names: &ByteRecord) -> String {
    const SHOWN: usize = 12;
    let shown: Vec<_> = names.iter().take(SHOWN).map(|name| format!("`{}`", excerpt(name))).collect();
    let more = if names.len() > SHOWN {
        format!(" and {} more", names.len() - SHOWN)
    } else {
        String::new()
    };
    shown.join(", ") + &more
}

impl fmt::Display for Column {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => write!(formatter, "one column `{name}`"),
            Self::Number(number) => write!(formatter, "a column {number} (from 0)"),
        }
    }
}
