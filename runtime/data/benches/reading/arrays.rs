//! Formats of numbers: arrays by rows, and tables in text.

use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::path::Path;

use csv::{ByteRecord, ReaderBuilder, Trim};
use sardana_data::Array;
use sardana_data::formats::csv::{Csv, CsvOptions};
use sardana_data::formats::npy::Npy;
use sardana_data::formats::safetensors::Safetensors;

use crate::Failed;
use crate::timed::{Case, Size, noise};

/// Of each row: 12 KiB.
const SHAPE: [usize; 3] = [3, 32, 32];
const ROW: usize = 4 * 3 * 32 * 32;

/// Row number `index` of `rows`.
fn row(rows: &[u8], index: u64) -> Result<Array<f32>, Failed> {
    let (numbers, _) = rows[index as usize * ROW..][..ROW].as_chunks();
    Ok(Array::new(
        &SHAPE,
        numbers.iter().map(|&number| f32::from_le_bytes(number)).collect(),
    )?)
}

pub(crate) fn npy(place: &Path, size: Size) -> Result<(), Failed> {
    let samples = size.bytes / ROW;
    let rows = noise(samples * ROW, 4);
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({samples}, 3, 32, 32), }}\n");
    let length = (header.len() as u16).to_le_bytes();
    let files = [place.join("images.npy")];
    let parts = [&b"\x93NUMPY\x01\x00"[..], &length, header.as_bytes(), &rows];
    fs::write(&files[0], parts.concat())?;
    let data = Npy::<f32>::open(&files[0])?;
    let case = Case {
        name: "npy/get",
        files: &files,
        samples: samples as u64,
        size,
    };
    case.compare(
        || case.get_all(&data),
        || {
            for index in case.order() {
                black_box(row(&rows, index)?);
            }
            Ok(())
        },
    )
}

pub(crate) fn safetensors(place: &Path, size: Size) -> Result<(), Failed> {
    let samples = size.bytes / ROW;
    let (rows, labels) = (noise(samples * ROW, 5), noise(samples * 8, 6));
    let (middle, end) = (rows.len(), rows.len() + labels.len());
    let header = format!(
        r#"{{"images":{{"dtype":"F32","shape":[{samples},3,32,32],"data_offsets":[0,{middle}]}},"labels":{{"dtype":"I64","shape":[{samples}],"data_offsets":[{middle},{end}]}}}}"#
    );
    let length = (header.len() as u64).to_le_bytes();
    let files = [place.join("train.safetensors")];
    fs::write(&files[0], [&length[..], header.as_bytes(), &rows, &labels].concat())?;
    let data = Safetensors::<f32, i64>::open(&files[0], "images", "labels")?;
    let case = Case {
        name: "safetensors/get",
        files: &files,
        samples: samples as u64,
        size,
    };
    let (labels, _) = labels.as_chunks();
    case.compare(
        || case.get_all(&data),
        || {
            for index in case.order() {
                let label = Array::new(&[], vec![i64::from_le_bytes(labels[index as usize])])?;
                black_box((row(&rows, index)?, label));
            }
            Ok(())
        },
    )
}

/// Opening reads all of it; afterwards samples are copied from memory. The decoder alone finds and reads the numbers, without a hash.
pub(crate) fn csv(place: &Path, size: Size) -> Result<(), Failed> {
    const COLUMNS: usize = 8;
    let mut text = "a,b,c,d,e,f,g,target\n".to_owned();
    let mut samples = 0;
    let numbers = noise(size.text, 7);
    for numbers in numbers.chunks_exact(4 * COLUMNS) {
        for (at, number) in numbers.as_chunks().0.iter().enumerate() {
            let number = f64::from(i32::from_le_bytes(*number)) / 1e6;
            let end = if at + 1 < COLUMNS { ',' } else { '\n' };
            write!(text, "{number:.3}{end}")?;
        }
        samples += 1;
        if text.len() >= size.text {
            break;
        }
    }
    let files = [place.join("table.csv")];
    fs::write(&files[0], &text)?;
    let options = CsvOptions::default();
    let mut case = Case {
        name: "csv/open",
        files: &files,
        samples,
        size,
    };
    case.compare(
        || {
            black_box(Csv::open(&files[0], &options)?);
            Ok(())
        },
        || {
            black_box(parse(&text)?);
            Ok(())
        },
    )?;
    let (data, numbers) = (Csv::open(&files[0], &options)?, parse(&text)?);
    case.name = "csv/get";
    case.compare(
        || case.get_all(&data),
        || {
            for index in case.order() {
                let row = &numbers[index as usize * COLUMNS..][..COLUMNS];
                let (input, target) = row.split_at(COLUMNS - 1);
                black_box((Array::row(input.to_vec()), Array::row(target.to_vec())));
            }
            Ok(())
        },
    )
}

/// All numbers of a table with a header.
fn parse(text: &str) -> Result<Vec<f64>, Failed> {
    let mut reader = ReaderBuilder::new().trim(Trim::All).from_reader(text.as_bytes());
    let (mut row, mut numbers) = (ByteRecord::new(), Vec::new());
    while reader.read_byte_record(&mut row)? {
        for cell in &row {
            numbers.push(str::from_utf8(cell)?.parse()?);
        }
    }
    Ok(numbers)
}
