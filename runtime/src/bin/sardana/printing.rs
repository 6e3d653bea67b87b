//! `print!` and `println!` for commands: where the reader of what they print has gone, as behind `| head`, they go on in silence; where it cannot be
//! written, as on a disk that is full, that is said at the end. The standard library's end the process by a panic, and with it the job that the command runs.

use std::fmt::Arguments;
use std::io::{Error, ErrorKind, Write, stdout};
use std::sync::Mutex;

macro_rules! print {
    ($($words:tt)*) => {
        $crate::printing::print(format_args!($($words)*))
    };
}

macro_rules! println {
    ($($words:tt)*) => {
        print!("{}\n", format_args!($($words)*))
    };
}

/// Why something that was printed was not written, the first time.
static LOST: Mutex<Option<Error>> = Mutex::new(None);

pub(crate) fn print(words: Arguments<'_>) {
    note(stdout().write_fmt(words));
}

/// Nothing more is printed. Why not all of it was written, if it was to be.
pub(crate) fn finish() -> Option<Error> {
    note(stdout().flush());
    LOST.lock().ok().and_then(|mut lost| lost.take())
}

fn note(written: Result<(), Error>) {
    // What has no reader any more is not lost.
    let lost = written.err().filter(|error| error.kind() != ErrorKind::BrokenPipe);
    if let (Some(error), Ok(mut first)) = (lost, LOST.lock()) {
        first.get_or_insert(error);
    }
}
