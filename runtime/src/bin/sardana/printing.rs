//! `print!` and `println!` for commands: where nobody reads what they print any more, as behind `| head`, they go on in silence. The standard
//! library's end the process by a panic, and with it the job that the command runs.

use std::fmt::Arguments;
use std::io::{Write, stdout};

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

pub(crate) fn print(words: Arguments<'_>) {
    // Whether that succeeds is of no consequence for what the command does.
    let _ = stdout().write_fmt(words);
}
