//! What a commit to the catalogue costs, beside what the disk itself takes for one write and one sync, and for two; and how long it
//! takes to open a catalogue, all of which is read.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use sardana_actors::catalogue::{Batch, Catalogue, limits};

const COMMITS: u32 = 2_000;
const VALUE: [u8; 100] = [7; 100];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Only to run it at all: `cargo test --benches` passes no `--bench`.
    let commits = if std::env::args().any(|argument| argument == "--bench") {
        COMMITS
    } else {
        20
    };
    let place = tempfile::tempdir_in(".")?;
    let one = plain(place.path(), 1, commits)?;
    report("plain/write+fdatasync/100B/1", &one, None);
    let two = plain(place.path(), 2, commits)?;
    report("plain/2x(write+fdatasync)/100B/1", &two, Some(&one));
    for threads in [1, 8] {
        let times = committing(&place.path().join(format!("threads-{threads}")), threads, commits)?;
        report(&format!("catalogue/commit/100B/{threads}"), &times, Some(&one));
    }
    for records in [1_000, 100_000] {
        opening(&place.path().join(format!("records-{records}")), records)?;
    }
    Ok(())
}

struct Times {
    wall: Duration,
    each: Vec<Duration>,
}

impl Times {
    fn rate(&self) -> f64 {
        self.each.len() as f64 / self.wall.as_secs_f64()
    }
}

fn report(name: &str, times: &Times, limit: Option<&Times>) {
    let mut each = times.each.clone();
    each.sort();
    let at = |percent: usize| each[(each.len() * percent / 100).min(each.len() - 1)];
    let ratio = limit.map_or(String::new(), |limit| {
        format!(", {:.2} of one plain sync", times.rate() / limit.rate())
    });
    println!("{name}: {:.0}/s, p50 {:.2?}, p99 {:.2?}{ratio}", times.rate(), at(50), at(99));
}

/// Appends to `files` files, and syncs each.
fn plain(place: &Path, files: usize, commits: u32) -> io::Result<Times> {
    let mut open = (0..files)
        .map(|file| File::create(place.join(format!("plain-{files}-{file}"))))
        .collect::<io::Result<Vec<_>>>()?;
    let begun = Instant::now();
    let mut each = Vec::new();
    for _ in 0..commits {
        let begun = Instant::now();
        for file in &mut open {
            file.write_all(&VALUE)?;
            file.sync_data()?;
        }
        each.push(begun.elapsed());
    }
    let wall = begun.elapsed();
    Ok(Times { wall, each })
}

fn committing(path: &Path, threads: u32, commits: u32) -> Result<Times, Box<dyn std::error::Error>> {
    let catalogue = Catalogue::open(path)?.catalogue;
    let begun = Instant::now();
    let done = std::thread::scope(|scope| {
        let working = (0..threads).map(|thread| {
            let table = catalogue.table("bench");
            scope.spawn(move || {
                let table = table?;
                (0..commits / threads)
                    .map(|number| {
                        let begun = Instant::now();
                        table.put(&[thread.to_be_bytes(), number.to_be_bytes()].concat(), &VALUE)?;
                        Ok(begun.elapsed())
                    })
                    .collect::<Result<Vec<_>, sardana_actors::catalogue::CatalogueError>>()
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
