//! `sardana status --watch`: what a person sees on a terminal, how it ends, and what it is where there is none.

use std::process::Command;

use super::operating::ids;
use super::program::{has, said};
use super::site::Site;
use super::terminal::Terminal;

/// The step in `running in g1.1, s12 of s1000`, if it is shown.
fn step(screen: &str) -> Option<u64> {
    let (before, _) = screen.split_once(" of s")?;
    before.rsplit_once(" s")?.1.parse().ok()
}

#[test]
fn a_person_sees_the_job_move_and_gets_the_terminal_back() {
    let site = Site::new();
    let running = site.run("-n 2 --restarts 0");
    running.event("sardana::event::formed");
    let workers = ids(&site.json("status"));
    let expected = [
        "running in g1.",
        "2 workers, in ring order",
        &workers[0],
        &workers[1],
        "r0",
        "r1",
        "0..2",
        "2..4",
        "q or Esc",
    ];
    // q, Esc, and Ctrl-C, which is a key there.
    for key in [&b"q"[..], b"\x1b", b"\x03"] {
        let Some(mut terminal) = Terminal::start(&site, "status --watch") else {
            return drop(running.stopped());
        };
        let shown = terminal.until("the job", |screen| {
            let contents = screen.contents();
            screen.alternate_screen() && screen.hide_cursor() && expected.iter().all(|word| contents.contains(word))
        });
        let first = step(&shown).unwrap_or_else(|| panic!("no step is shown\n{shown}"));
        terminal.until("a later step", |screen| {
            step(&screen.contents()).is_some_and(|step| step > first)
        });
        terminal.press(key);
        let (status, left) = terminal.end();
        assert_eq!(status.code(), Some(0), "{left}");
        assert!(!left.contains("ring order"), "the view is gone:\n{left}");
    }
    // The job went on meanwhile.
    assert_eq!(ids(&site.json("status")), workers);
    running.stopped();
}

#[test]
fn the_end_of_the_job_and_a_signal_give_the_terminal_back_too() {
    let site = Site::new();
    let running = site.run("-n 1 --restarts 0");
    running.event("sardana::event::formed");
    let watching = || {
        let mut terminal = Terminal::start(&site, "status --watch")?;
        terminal.until("the view", |screen| screen.contents().contains("1 worker, in ring order"));
        Some(terminal)
    };
    let Some(terminal) = watching() else {
        return drop(running.stopped());
    };
    let pid = terminal.child.id().to_string();
    let asked = Command::new("kill").args(["-s", "TERM", &pid]).status();
    assert!(asked.unwrap().success());
    let (status, left) = terminal.end();
    assert_eq!(status.code(), Some(0), "{left}");

    let terminal = watching().unwrap();
    site.done("stop");
    let (status, left) = terminal.end();
    assert_eq!(status.code(), Some(0), "{left}");
    // The last status stays.
    has(&left, &["the job is over; this was the last that was seen of it", "endless"]);
    running.ends_well();
}

#[test]
fn without_a_terminal_it_is_shown_once() {
    let site = Site::new();
    let running = site.run("-n 1 --restarts 0");
    running.event("sardana::event::formed");
    let [shown, noted] = said(&mut site.command("status --watch"), 0);
    has(&noted, &["--watch needs a terminal, found none: the status is printed once"]);
    has(&shown, &["endless", "r0"]);
    assert!(!shown.contains('\x1b'), "nothing that only a terminal understands: {shown:?}");
    running.stopped();
}
