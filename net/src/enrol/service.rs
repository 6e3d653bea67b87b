//! The coordinator's end of an enrolment: one message, one answer, and the connection ends.

use std::net::IpAddr;
use std::sync::Arc;

use quinn::{Connection, ConnectionError, SendStream, VarInt};
use tokio::time::timeout;

use super::limits::{ENROL_DEADLINE, ENROL_FRAME_BYTES, ENROLMENTS, MAX_ENROLMENTS};
use super::messages::{EnrolAnswer, EnrolRequest};
use super::registrar::Registrar;
use crate::environment::Environment;
use crate::log::refused;
use crate::quic::{Place, Places, REFUSED, explain, network};
use crate::trust::Moment;
use crate::wire::{read_frame, write_frame};

/// The application's close code when too many enrol at once: come again.
pub const COME_AGAIN: VarInt = VarInt::from_u32(2);

/// Why a process was not enrolled.
enum NotEnrolled {
    /// Others need its place, and nothing was asked yet.
    Busy,
    /// It is told why.
    Refused(String),
}

impl From<String> for NotEnrolled {
    fn from(reason: String) -> Self {
        Self::Refused(reason)
    }
}

/// Enrols strangers at one coordinator.
#[derive(Debug, Clone)]
pub struct EnrolService {
    environment: Environment,
    registrar: Arc<Registrar>,
    places: Arc<Places<IpAddr>>,
}

impl EnrolService {
    /// Enrols the processes that `registrar` certifies.
    #[must_use]
    pub fn new(registrar: Arc<Registrar>) -> Self {
        Self::on(Environment::Host, registrar)
    }

    /// Likewise, on another environment than the host.
    #[must_use]
    pub fn on(environment: Environment, registrar: Arc<Registrar>) -> Self {
        Self {
            environment,
            registrar,
            places: Arc::new(Places::new(ENROLMENTS)),
        }
    }

    /// Serves one stranger, for a bounded time, and closes the connection.
    pub async fn serve(self, connection: Connection) {
        let from = connection.remote_address();
        let Some(place) = self.places.take(network(from.ip())) else {
            return turn_away(&connection);
        };
        let exchanged = timeout(ENROL_DEADLINE, self.exchange(&connection, &place)).await;
        match exchanged {
            Ok(Ok(())) => connection.close(0_u32.into(), b"enrolled"),
            Ok(Err(NotEnrolled::Busy)) => turn_away(&connection),
            Ok(Err(NotEnrolled::Refused(reason))) => {
                refused!(%from, %reason, "a process was not enrolled");
                connection.close(REFUSED, reason.as_bytes());
            }
            Err(_) => {
                refused!(%from, "an enrolment took too long: more than {ENROL_DEADLINE:?}");
                connection.close(REFUSED, b"the enrolment took too long");
            }
        }
    }

    async fn exchange(&self, connection: &Connection, place: &Place<IpAddr>) -> Result<(), NotEnrolled> {
        let heard = tokio::select! {
            biased;
            heard = hear(connection) => heard?,
            // From here on an answer is due: the invitation may have been used.
            () = place.wanted() => return Err(NotEnrolled::Busy),
        };
        let Some((asked, mut send)) = heard else { return Ok(()) };
        let registrar = Arc::clone(&self.registrar);
        let what = asked.what();
        // It signs, and may wait for a disk.
        let now = Moment::of(self.environment.now());
        let decide = move || registrar.enrol(&asked, now);
        let decided = self.environment.blocking(decide).await;
        let decided = decided.ok_or_else(|| "the coordinator ends".to_owned())?;
        let (answer, refused) = match decided {
            Ok(certificate) => (EnrolAnswer::Enrolled { certificate }, None),
            Err(refusal) => {
                let reason = refusal.to_string();
                (EnrolAnswer::Refused { reason: reason.clone() }, Some(reason))
            }
        };
        let sent = write_frame(&mut send, &answer, ENROL_FRAME_BYTES).await;
        sent.map_err(|error| error.to_string())?;
        // Only fails when the stream has ended already.
        let _ = send.finish();
        // The other end closes once it has the answer.
        connection.closed().await;
        match refused {
            Some(reason) => Err(reason.into()),
            None => {
                tracing::info!(target: "sardana::event::enrolled", from = %connection.remote_address(), %what);
                Ok(())
            }
        }
    }
}

/// What a stranger asks for; none if it only wanted to know whether a coordinator is here.
async fn hear(connection: &Connection) -> Result<Option<(EnrolRequest, SendStream)>, String> {
    let (send, mut receive) = match connection.accept_bi().await {
        Ok(streams) => streams,
        Err(ConnectionError::ApplicationClosed(_)) => return Ok(None),
        Err(error) => return Err(explain(&error)),
    };
    let asked = read_frame::<EnrolRequest>(&mut receive, ENROL_FRAME_BYTES).await;
    let asked = asked.map_err(|error| error.to_string())?.ok_or("it asked for nothing")?;
    Ok(Some((asked, send)))
}

fn turn_away(connection: &Connection) {
    let from = connection.remote_address();
    refused!(%from, "more than {MAX_ENROLMENTS} enrol at once");
    connection.close(COME_AGAIN, b"too many enrol at once; try again");
}
