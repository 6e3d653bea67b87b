//! A table of numbers from a CSV file; what is no such table is refused with its line. Knows nothing of what the numbers mean.

use anyhow::{Context, Result, bail, ensure};

/// What the first line of a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstLine {
    /// Names of the columns.
    Names,
    /// The first row.
    Row,
}

/// One row of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Where it stands in the file, from 1.
    pub line: usize,
    /// Its numbers, all finite.
    pub numbers: Vec<f64>,
}

/// Reads rows of `columns` numbers, separated by commas. `source` names the text in errors.
///
/// # Errors
/// When a line is no such row, or there is none; the error names source, line, what was expected and what was found.
pub fn parse(text: &str, source: &str, first: FirstLine, columns: usize) -> Result<Vec<Row>> {
    let skipped = match first {
        FirstLine::Names => 1,
        FirstLine::Row => 0,
    };
    let mut rows = Vec::new();
    for (index, text) in text.lines().enumerate().skip(skipped) {
        let line = index + 1;
        let numbers = row(text, columns).with_context(|| format!("{source}, line {line}"))?;
        rows.push(Row { line, numbers });
    }
    ensure!(
        !rows.is_empty(),
        "{source}: expected at least one row of {columns} numbers, found none"
    );
    Ok(rows)
}

fn row(text: &str, columns: usize) -> Result<Vec<f64>> {
    let found = text.split(',').count();
    ensure!(
        found == columns,
        "expected {columns} numbers separated by commas, found {found} fields; correct or remove the line"
    );
    let mut numbers = Vec::with_capacity(columns);
    for (index, field) in text.split(',').enumerate() {
        match field.trim().parse::<f64>() {
            Ok(number) if number.is_finite() => numbers.push(number),
            Ok(_) | Err(_) => {
                // A long field would drown the message.
                let shown: String = field.chars().take(40).collect();
                bail!(
                    "expected a finite number in field {}, found {shown:?}; correct or remove the line",
                    index + 1
                );
            }
        }
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        format!("{:#}", parse(text, "t.csv", FirstLine::Names, 2).unwrap_err())
    }

    #[test]
    fn rows_know_their_lines() {
        let rows = parse("a,b\n1, 2.5\r\n-3,4e2\n", "t.csv", FirstLine::Names, 2).unwrap();
        let row = |line, numbers: [f64; 2]| Row {
            line,
            numbers: numbers.to_vec(),
        };
        assert_eq!(rows, [row(2, [1.0, 2.5]), row(3, [-3.0, 400.0])]);
    }

    #[test]
    fn what_is_no_table_is_refused_with_its_line() {
        assert_eq!(
            refusal("a,b\n1,2\n1,2,3\n"),
            "t.csv, line 3: expected 2 numbers separated by commas, found 3 fields; correct or remove the line"
        );
        assert_eq!(
            refusal("a,b\n1,two\n"),
            "t.csv, line 2: expected a finite number in field 2, found \"two\"; correct or remove the line"
        );
        assert!(refusal("a,b\nNaN,1\n").contains("finite number in field 1"));
        assert!(refusal("a,b\n1,2\n\n").contains("line 3: expected 2 numbers"));
        assert_eq!(refusal("a,b\n"), "t.csv: expected at least one row of 2 numbers, found none");
    }
}
