//! What all commands to a job that runs have in common: which job is meant, and one question.

use std::path::PathBuf;

use clap::Args;
use sardana::operator::{Access, OperatorAnswer, OperatorRequest, ask};

use crate::access::{self, KeyringPlace};
use crate::ending::{Failure, runtime};

/// The job that is meant.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// An operator's join file, as `sardana invite --role operator` writes it. Not needed for the only job that you run on this
    /// host.
    #[arg(long, value_name = "FILE")]
    pub(crate) join: Option<PathBuf>,
    #[command(flatten)]
    keyring: KeyringPlace,
}

impl Target {
    /// The way to the coordinator of that job.
    pub(crate) async fn find(&self) -> Result<Access, Failure> {
        access::find(self.join.as_deref(), &self.keyring).await
    }

    /// Asks for something to be done, and prints what is.
    pub(crate) fn order(&self, request: &OperatorRequest) -> Result<(), Failure> {
        let answer = runtime()?.block_on(async {
            let access = self.find().await?;
            ask(&access, request).await.map_err(Failure::failed)
        })?;
        match answer {
            OperatorAnswer::Done { what } => {
                println!("{what}");
                Ok(())
            }
            OperatorAnswer::Refused { reason } => Err(Failure::Failed(reason)),
            OperatorAnswer::Status(_) => Err(Failure::Failed(
                "expected an answer to an order, found a status: run the same release of sardana everywhere".to_owned(),
            )),
        }
    }
}
