//! How a table is to be read, as its first rows show: what is between cells, whether there is a header, which columns have numbers.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sardana::data::DataError;
use sardana::data::formats::csv::CsvOptions;

use super::survey::Table;

/// As much of a file is looked at: many rows of any table.
const LOOKED_AT_BYTES: u64 = 64 << 10;

/// What may be between cells, the most common first.
const DELIMITERS: [char; 4] = [',', ';', '\t', '|'];

/// A guess.
#[derive(Debug)]
pub(super) struct Guess {
    /// What was guessed.
    pub(super) table: Table,
}

/// The cells of a row, without their quotes and the blanks around them.
type Row = Vec<String>;

/// Looks at the first rows of `file`.
///
/// # Errors
/// When it cannot be read.
pub(super) fn of(file: &Path) -> Result<Guess, DataError> {
    let mut beginning = Vec::new();
    let opened = File::open(file).map_err(DataError::io(file, "open it"))?;
    let read = opened.take(LOOKED_AT_BYTES).read_to_end(&mut beginning);
    read.map_err(DataError::io(file, "read it"))?;
    let text = String::from_utf8_lossy(&beginning);
    let is_cut = beginning.len() as u64 == LOOKED_AT_BYTES;
    let table = guess(text.trim_start_matches('\u{feff}'), is_cut);
    Ok(Guess { table })
}

impl Guess {
    /// The table is read so.
    pub(super) fn options(&self) -> CsvOptions {
        let Table {
            names,
            delimiter,
            inputs,
            target,
            ..
        } = &self.table;
        let options =
            u8::try_from(*delimiter).map_or_else(|_| CsvOptions::default(), |byte| CsvOptions::default().delimiter(byte));
        let options = if names.is_some() { options } else { options.without_header() };
        match target {
            Some(target) => options.inputs(inputs.iter().copied()).targets([*target]),
            // Too few columns have numbers: the error then says what is there instead.
            None => options,
        }
    }
}

fn guess(text: &str, is_cut: bool) -> Table {
    let most = |&delimiter: &char| rows(text, delimiter).first().map_or(0, Vec::len);
    // Of several with as many cells, the last is the maximum.
    let delimiter = DELIMITERS.into_iter().rev().max_by_key(most).unwrap_or(',');
    let mut rows = rows(text, delimiter);
    if is_cut && rows.len() > 1 {
        rows.pop();
    }
    let first = rows.first().cloned().unwrap_or_default();
    let below = rows.get(1..).filter(|below| !below.is_empty()).unwrap_or(&rows);
    let has_numbers: Vec<_> = (0..first.len()).filter(|&column| is_of_numbers(below, column)).collect();
    let named = has_numbers.iter().filter(|&&column| !is_number(&first[column])).count();
    let is_header = 2 * named > has_numbers.len() || has_numbers.is_empty();
    let (target, inputs) = match has_numbers.split_last() {
        Some((&target, inputs)) if !inputs.is_empty() => (Some(target), inputs.to_vec()),
        _ => (None, Vec::new()),
    };
    Table {
        columns: first.len(),
        names: is_header.then_some(first),
        delimiter,
        inputs,
        target,
    }
}

/// Whether at least half of the cells of a column that have anything in them are numbers: one that is damaged is no reason to pass over all.
fn is_of_numbers(rows: &[Row], column: usize) -> bool {
    let filled = || rows.iter().filter_map(|row| row.get(column)).filter(|cell| !cell.is_empty());
    let numbers = filled().filter(|cell| is_number(cell)).count();
    numbers > 0 && 2 * numbers >= filled().count()
}

fn is_number(cell: &str) -> bool {
    cell.parse::<f64>().is_ok()
}

/// The rows of a text, as far as it goes; cells may be quoted (RFC 4180). Empty lines are none.
fn rows(text: &str, delimiter: char) -> Vec<Row> {
    let (mut rows, mut row, mut cell, mut is_quoted) = (Vec::new(), Row::new(), String::new(), false);
    let mut end_row = |row: &mut Row, cell: &mut String| {
        row.push(std::mem::take(cell).trim().to_owned());
        let row = std::mem::take(row);
        if row.len() > 1 || row.iter().any(|cell| !cell.is_empty()) {
            rows.push(row);
        }
    };
    for character in text.chars() {
        match character {
            '"' if is_quoted || cell.trim().is_empty() => is_quoted = !is_quoted,
            '\n' | '\r' if !is_quoted => end_row(&mut row, &mut cell),
            other if other == delimiter && !is_quoted => row.push(std::mem::take(&mut cell).trim().to_owned()),
            other => cell.push(other),
        }
    }
    end_row(&mut row, &mut cell);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(table: &Table) -> Option<Vec<&str>> {
        let names = table.names.as_ref()?;
        Some(names.iter().map(String::as_str).collect())
    }

    #[test]
    fn a_header_is_told_from_a_row_by_what_is_below_it() {
        let table = guess("a,b,y\n1,2,3\n4,5,6\n", false);
        assert_eq!((names(&table), table.delimiter), (Some(vec!["a", "b", "y"]), ','));
        assert_eq!((&table.inputs[..], table.target), (&[0, 1][..], Some(2)));
        let table = guess("1,2,3\n4,5,6\n", false);
        assert_eq!((names(&table), table.columns), (None, 3));
        let table = guess("5.1,3.5,setosa\n4.9,3.0,setosa\n", false);
        assert_eq!((names(&table), &table.inputs[..], table.target), (None, &[0][..], Some(1)));
    }

    #[test]
    fn cells_are_cut_where_the_first_row_has_most_of_them() {
        let table = guess("\"a, b\";c;d\n\"x;\ny\";\"2\";3,0\n", false);
        assert_eq!((names(&table), table.delimiter), (Some(vec!["a, b", "c", "d"]), ';'));
        assert_eq!(guess("a\tb\n1\t2", false).delimiter, '\t');
        assert_eq!(guess("a\n1\n", false).delimiter, ',');
    }

    #[test]
    fn one_damaged_cell_does_not_make_a_column_of_text() {
        let table = guess("a,b\n1,2\nx,4\n", false);
        assert_eq!((&table.inputs[..], table.target), (&[0][..], Some(1)));
        let table = guess("a,b,name\n1,2,\n3,4,five", true);
        assert_eq!(
            (&table.inputs[..], table.target),
            (&[0][..], Some(1)),
            "what is cut off may be anything"
        );
    }

    #[test]
    fn a_text_without_two_columns_of_numbers_has_no_target() {
        for text in ["", "\n", "a,b\nc,d\n", "1\n2\n"] {
            assert_eq!(guess(text, false).target, None, "{text}");
        }
    }
}
