//! The way from what a person gives to a coordinator.

use std::path::Path;

use sardana::hosts::{Enrolled, Role, default_place, enrol, find_running};
use sardana::operator::Access;

use crate::ending::Failure;

/// Access to the job of the join file at `join`, or to the only job that this user runs on this host.
pub(crate) async fn find(join: Option<&Path>) -> Result<Access, Failure> {
    let path = match join {
        Some(path) => path.to_owned(),
        None => {
            let place = default_place().map_err(Failure::failed)?;
            find_running(&place).await.map_err(Failure::failed)?
        }
    };
    let enrolled = enrol(&path, Role::Operator).await.map_err(Failure::failed)?;
    let Enrolled {
        credentials,
        coordinator,
    } = enrolled;
    Ok(Access {
        coordinator: coordinator.found(),
        credentials,
    })
}
