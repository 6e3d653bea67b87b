//! What a commit to the catalogue costs, beside what the disk itself takes for one write and one sync, and for two; and how
//! long it takes to open a catalogue, all of which is read.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use sardana_storage::catalogue::{Batch, Catalogue, CatalogueError, limits};

/// Commits of each kind in a round, and rounds: the kinds take turns, since a disk's speed changes with what others do to it.
const COMMITS: u32 = 200;
const ROUNDS: u32 = 10;
const VALUE: [u8; 100] = [7; 100];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Only to run it at all: `cargo test --benches` passes no `--bench`.
    let measuring = std::env::args().any(|argument| argument == "--bench");
    let (commits, rounds) = if measuring { (COMMITS, ROUNDS) } else { (16, 1) };
    let place = tempfile::tempdir_in(".")?;
    let (first, second) = (tempfile::tempfile_in(place.path())?, tempfile::tempfile_in(place.path())?);
    let catalogue = Catalogue::open(&place.path().join("catalogue"))?.catalogue;
    let mut kinds = [(); 4].map(|()| Times::default());
    for round in 0..rounds {
        kinds[0].add(plain(&mut [&first], commits)?);
        kinds[1].add(plain(&mut [&first, &second], commits)?);
        kinds[2].add(committing(&catalogue, 1, round, commits)?);
        kinds[3].add(committing(&catalogue, 8, round, commits)?);
    }
    let names = [
        "plain/write+fdatasync/100B/1",
        "plain/2x(write+fdatasync)/100B/1",
        "catalogue/commit/100B/1",
        "catalogue/commit/100B/8",
    ];
    for (name, times) in names.iter().zip(&kinds) {
        report(name, times, &kinds[0]);
    }
    drop(catalogue);
    for records in if measuring { [1_000, 100_000] } else { [10, 100] } {
        opening(&place.path().join(format!("records-{records}")), records)?;
    }
    space(&place.path().join("space"), if measuring { 400 } else { 8 })
}

#[derive(Default)]
struct Times {
    wall: Duration,
    each: Vec<Duration>,
}

impl Times {
    fn rate(&self) -> f64 {
        self.each.len() as f64 / self.wall.as_secs_f64()
    }

    fn add(&mut self, more: Self) {
        self.wall += more.wall;
        self.each.extend(more.each);
    }
}

fn report(name: &str, times: &Times, limit: &Times) {
    let mut each = times.each.clone();
    each.sort();
    let at = |percent: usize| each[(each.len() * percent / 100).min(each.len() - 1)];
    let (rate, ratio) = (times.rate(), times.rate() / limit.rate());
    println!(
        "{name}: {rate:.0}/s, p50 {:.2?}, p99 {:.2?}, {ratio:.2} of one plain sync",
        at(50),
        at(99)
    );
}

/// Appends to all `files`, and syncs each.
fn plain(files: &mut [&File], commits: u32) -> io::Result<Times> {
    let begun = Instant::now();
    let mut each = Vec::new();
    for _ in 0..commits {
        let begun = Instant::now();
        for file in files.iter_mut() {
            file.write_all(&VALUE)?;
            file.sync_data()?;
        }
        each.push(begun.elapsed());
    }
    let wall = begun.elapsed();
    Ok(Times { wall, each })
}

fn committing(catalogue: &Catalogue, threads: u32, round: u32, commits: u32) -> Result<Times, Box<dyn std::error::Error>> {
    let begun = Instant::now();
    let done = std::thread::scope(|scope| {
        let working = (0..threads).map(|thread| {
            scope.spawn(move || {
                let table = catalogue.table("bench")?;
                let commit = |number: u32| {
                    let begun = Instant::now();
                    let key = [threads, thread, round, number].map(u32::to_be_bytes).concat();
                    table.put(&key, &VALUE).map(|()| begun.elapsed())
                };
                (0..commits / threads).map(commit).collect::<Result<Vec<_>, CatalogueError>>()
            })
        });
        let working: Vec<_> = working.collect();
        working.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    let wall = begun.elapsed();
    let mut each = Vec::new();
    for thread in done {
        each.extend(thread.map_err(|_panic| "a thread panicked")??);
    }
    Ok(Times { wall, each })
}

fn opening(path: &Path, records: u32) -> Result<(), Box<dyn std::error::Error>> {
    let catalogue = Catalogue::open(path)?.catalogue;
    let numbers: Vec<u32> = (0..records).collect();
    let begun = Instant::now();
    for numbers in numbers.chunks(limits::BATCH_CHANGES) {
        let batch = numbers.iter().fold(Batch::new(), |batch, number| {
            batch.put("bench", &number.to_be_bytes(), &VALUE)
        });
        catalogue.commit(&batch)?;
    }
    println!("catalogue/fill/100B/{records}: {:.2?}", begun.elapsed());
    drop(catalogue);
    for turn in ["summed up while opening", "again"] {
        let begun = Instant::now();
        let opened = Catalogue::open(path)?;
        println!("catalogue/open/100B/{records}: {:.2?} ({turn})", begun.elapsed());
        drop(opened);
    }
    Ok(())
}

/// How much room sled takes for values of the largest size, each replaced now and then.
fn space(path: &Path, values: u32) -> Result<(), Box<dyn std::error::Error>> {
    let catalogue = Catalogue::open(path)?.catalogue;
    for turn in 1..=5 {
        let begun = Instant::now();
        for number in 0..values {
            let value = vec![turn; limits::VALUE_BYTES];
            catalogue.commit(&Batch::new().put("bench", &number.to_be_bytes(), &value))?;
        }
        let file = std::fs::metadata(path.join("store/db"))?.len() as f64;
        let live = f64::from(values) * limits::VALUE_BYTES as f64;
        println!(
            "catalogue/space/64KiB/{values}: written {turn} times, {:.2?}, {:.1} times the live data",
            begun.elapsed(),
            file / live
        );
    }
    Ok(())
}
