//! A terminal of a test's own: the program runs in it, its keys are pressed, and its screen is read.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Instant;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use vt100::{Parser, Screen};

use super::program::PATIENCE;
use super::site::Site;

const ROWS: NonZeroU16 = NonZeroU16::new(40).unwrap();
const COLUMNS: NonZeroU16 = NonZeroU16::new(120).unwrap();

/// The arguments of the program in the terminal, separated by spaces.
const IN_TERMINAL: &str = "TEST_IN_TERMINAL";

pub(crate) struct Terminal {
    pub(crate) child: Child,
    master: File,
    before: Termios,
    said: Receiver<Vec<u8>>,
    parser: Parser,
}

/// Not a test: takes its standard input as its own terminal and becomes the program, if another test wants it.
#[test]
fn becomes_the_program_in_a_terminal() {
    let Ok(arguments) = std::env::var(IN_TERMINAL) else { return };
    // The person who runs the tests may have a terminal, too: the program must not find that one.
    rustix::process::setsid().unwrap();
    rustix::process::ioctl_tiocsctty(std::io::stdin()).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_sardana"));
    panic!("{}", program.args(arguments.split(' ')).exec());
}

impl Terminal {
    /// The program with these arguments in a new terminal, where it finds only the jobs of `site`. None, and said so, on a host
    /// without pseudo terminals.
    pub(crate) fn start(site: &Site, arguments: &str) -> Option<Self> {
        let (master, slave) = match pair() {
            Ok(pair) => pair,
            Err(error) => {
                println!("skipped: no pseudo terminal can be had here: {error}");
                return None;
            }
        };
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "terminal::becomes_the_program_in_a_terminal", "--nocapture"]);
        for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "RUST_BACKTRACE"] {
            command.env_remove(name);
        }
        command
            .env(IN_TERMINAL, arguments)
            .env("TERM", "xterm-256color")
            .env("RUST_LOG", "error");
        for name in ["XDG_RUNTIME_DIR", "XDG_STATE_HOME"] {
            command.env(name, site.path(""));
        }
        let before = tcgetattr(&slave).unwrap();
        let [input, output] = [(); 2].map(|()| Stdio::from(slave.try_clone().unwrap()));
        // The last copy here goes with the command, so that the terminal's end is seen.
        let child = command.stdin(input).stdout(output).stderr(slave).spawn().unwrap();
        drop(command);
        let master = File::from(master);
        Some(Self {
            child,
            before,
            said: follow(master.try_clone().unwrap()),
            master,
            parser: Parser::new(ROWS, COLUMNS, 0),
        })
    }

    /// Presses keys.
    pub(crate) fn press(&mut self, keys: &[u8]) {
        self.master.write_all(keys).unwrap();
    }

    /// Waits until the screen shows it.
    pub(crate) fn until(&mut self, what: &str, shows: impl Fn(&Screen) -> bool) -> String {
        let give_up = Instant::now() + PATIENCE;
        while !shows(self.parser.screen()) {
            if !self.hear(give_up) {
                panic!("{what} is not shown before the end\n{}", self.parser.screen().contents());
            }
        }
        self.parser.screen().contents()
    }

    /// Waits for what is written to the screen next. Whether the program has not ended.
    fn hear(&mut self, give_up: Instant) -> bool {
        match self.said.recv_timeout(give_up.saturating_duration_since(Instant::now())) {
            Ok(said) => {
                self.parser.process(&said);
                true
            }
            Err(RecvTimeoutError::Disconnected) => false,
            Err(RecvTimeoutError::Timeout) => panic!("it takes too long\n{}", self.parser.screen().contents()),
        }
    }

    /// Waits for the program's end. Returns how it ended, and what is on the screen then. The terminal must be as it was.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let give_up = Instant::now() + PATIENCE;
        while self.hear(give_up) {}
        let status = self.child.wait().unwrap();
        let (screen, after) = (self.parser.screen(), tcgetattr(&self.master).unwrap());
        assert!(!screen.alternate_screen(), "the alternate screen is left");
        assert!(!screen.hide_cursor(), "the cursor is shown");
        assert!(!screen.bracketed_paste() && !screen.application_keypad() && !screen.application_cursor());
        assert_eq!(screen.mouse_protocol_mode(), vt100::MouseProtocolMode::None);
        // Lines, their editing and signals by keys.
        assert_eq!(after.local_modes, self.before.local_modes);
        assert_eq!(after.input_modes, self.before.input_modes);
        assert_eq!(after.output_modes, self.before.output_modes);
        (status, screen.contents())
    }
}

/// Both ends of a new terminal.
fn pair() -> Result<(OwnedFd, OwnedFd), rustix::io::Errno> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let slave = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    let size = Winsize {
        ws_row: ROWS.get(),
        ws_col: COLUMNS.get(),
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&slave, size)?;
    Ok((master, slave))
}

fn follow(mut master: File) -> Receiver<Vec<u8>> {
    let (sender, said) = channel();
    thread::spawn(move || {
        let mut buffer = [0; 4_096];
        // It ends with an error, once no process has the other end any more.
        while let Ok(length @ 1..) = master.read(&mut buffer)
            && sender.send(buffer[..length].to_vec()).is_ok()
        {}
    });
    said
}
