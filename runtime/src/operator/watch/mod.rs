//! A status that stays on the screen until a person has seen enough.

#[cfg(test)]
mod devices_shown;
mod history;
#[cfg(test)]
mod screens;
mod view;

use std::io;
use std::time::Duration;

use futures_util::future::BoxFuture;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, read};
use sardana_protocol::status::{JobStatus, OperatorAnswer, OperatorRequest};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::{Access, Operator, OperatorError};
pub use history::History;
pub use view::draw;

/// Between two looks at the job.
const EVERY: Duration = Duration::from_millis(500);

/// Between two attempts to reach a coordinator that was lost.
const AGAIN: Duration = Duration::from_secs(1);

/// Why a view ended early.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The coordinator could not be asked even once.
    #[error(transparent)]
    Operator(#[from] OperatorError),
    /// The terminal cannot be drawn on or read from. Ask for the status without a view.
    #[error("the terminal cannot be used: {0}; ask without --watch")]
    Terminal(#[from] io::Error),
}

/// How a view ended.
#[derive(Debug)]
pub enum Watched {
    /// A person ended it, by a key or a signal.
    Enough,
    /// The job is over; this is the last that was seen of it.
    Over(Box<JobStatus>),
}

/// Shows the job until q, Esc, Ctrl-C, a signal, or its end. Gives the terminal back in every case, also in a panic.
///
/// # Errors
/// When the job cannot be asked at first, or the terminal fails.
pub fn watch(access: &Access) -> BoxFuture<'_, Result<Watched, WatchError>> {
    Box::pin(show(access))
}

async fn show(access: &Access) -> Result<Watched, WatchError> {
    let mut operator = access.connect().await?;
    let status = ask(&mut operator).await?;
    let signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
    let [term, int, hangup] = signals.map(signal);
    let ends = Ends {
        keys: keys()?,
        signals: [term?, int?, hangup?],
    };
    let mut watcher = Watcher {
        access: access.clone(),
        operator: Some(operator),
        status,
        history: History::default(),
        note: None,
    };
    let mut terminal = ratatui::try_init()?;
    let outcome = watcher.run(&mut terminal, ends).await;
    drop(terminal);
    ratatui::restore();
    outcome
}

/// The ways in which a person ends the view.
struct Ends {
    keys: mpsc::UnboundedReceiver<Key>,
    signals: [Signal; 3],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Quit,
    Redraw,
}

struct Watcher {
    access: Access,
    /// None while the coordinator is not reached.
    operator: Option<Operator>,
    status: JobStatus,
    history: History,
    /// The last error.
    note: Option<String>,
}

impl Watcher {
    async fn run(&mut self, terminal: &mut DefaultTerminal, mut ends: Ends) -> Result<Watched, WatchError> {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            terminal.draw(|frame| draw(frame, &self.status, &self.history, self.note.as_deref()))?;
            let looking = async {
                ticks.tick().await;
                self.look().await
            };
            let [term, int, hangup] = &mut ends.signals;
            tokio::select! {
                biased;
                key = ends.keys.recv() => match key {
                    Some(Key::Redraw) => {}
                    // Without keys it could not be ended.
                    Some(Key::Quit) | None => return Ok(Watched::Enough),
                },
                _ = term.recv() => return Ok(Watched::Enough),
                _ = int.recv() => return Ok(Watched::Enough),
                _ = hangup.recv() => return Ok(Watched::Enough),
                over = looking => if over {
                    return Ok(Watched::Over(Box::new(self.status.clone())));
                },
            }
        }
    }

    /// Asks once more, and says whether the coordinator has ended. A coordinator that is not reached is looked for again.
    async fn look(&mut self) -> bool {
        // Given up half-way, by a key, a connection is out of step: so it is only put back when it has answered.
        let asked = match self.operator.take() {
            Some(operator) => Ok(operator),
            None => {
                sleep(AGAIN).await;
                match self.access.again().await {
                    Ok(access) => self.access = access,
                    Err(error) => {
                        self.note = Some(error.to_string());
                        return false;
                    }
                }
                self.access.connect().await
            }
        };
        let answered = match asked {
            Ok(mut operator) => ask(&mut operator).await.map(|status| (operator, status)),
            Err(error) => Err(error),
        };
        match answered {
            Ok((operator, status)) => {
                self.operator = Some(operator);
                self.history.note(&status);
                self.status = status;
                self.note = None;
                false
            }
            Err(OperatorError::Ended { .. }) => true,
            Err(error) => {
                self.note = Some(error.to_string());
                false
            }
        }
    }
}

async fn ask(operator: &mut Operator) -> Result<JobStatus, OperatorError> {
    loop {
        match operator.ask(&OperatorRequest::Status).await? {
            OperatorAnswer::Status(status) => return Ok(*status),
            // No answer to this; the next one may be.
            OperatorAnswer::Done { .. } | OperatorAnswer::Refused { .. } => {}
        }
    }
}

/// Reads keys on a thread of its own, which ends with the process.
fn keys() -> io::Result<mpsc::UnboundedReceiver<Key>> {
    let (sender, keys) = mpsc::unbounded_channel();
    std::thread::Builder::new().name("keys".to_owned()).spawn(move || {
        while let Ok(event) = read() {
            if let Some(key) = meaning(&event)
                && sender.send(key).is_err()
            {
                return;
            }
        }
    })?;
    Ok(keys)
}

fn meaning(event: &Event) -> Option<Key> {
    match event {
        Event::Key(KeyEvent {
            code,
            modifiers,
            kind: KeyEventKind::Press,
            ..
        }) => {
            let interrupt = *code == KeyCode::Char('c') && modifiers.contains(KeyModifiers::CONTROL);
            let quits = interrupt || [KeyCode::Char('q'), KeyCode::Esc].contains(code);
            quits.then_some(Key::Quit)
        }
        Event::Resize(..) => Some(Key::Redraw),
        Event::Key(_) | Event::FocusGained | Event::FocusLost | Event::Mouse(_) | Event::Paste(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_end_the_view() {
        let key = |code, modifiers| meaning(&Event::Key(KeyEvent::new(code, modifiers)));
        for code in [KeyCode::Char('q'), KeyCode::Esc] {
            assert_eq!(key(code, KeyModifiers::NONE), Some(Key::Quit));
        }
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Quit));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(meaning(&Event::Resize(80, 24)), Some(Key::Redraw));
    }
}
