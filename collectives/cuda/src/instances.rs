//! The GPUs of this machine by name, with the instances of those that are divided (MIG), as NVML tells them without starting one. Must not know who computes on
//! them.
//!
//! CUDA shows a process one instance at most, and then no whole GPU: it has to be told of one by its name.

use crate::raw::nvml::{Handle, Session};

/// A GPU of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// As in `GPU-…`.
    pub name: String,
    /// None where it is whole. Where it is divided, the names of its instances that this process may see, as in `MIG-…`.
    pub instances: Option<Vec<String>>,
}

/// The GPUs that this process may see, in the order of NVML. None where there is no NVML, or it does not begin.
#[must_use]
pub fn gpus() -> Option<Vec<Named>> {
    let session = Session::begin()?;
    let named = |gpu| named(&session, gpu);
    Some(session.gpus().into_iter().filter_map(named).collect())
}

fn named(session: &Session, gpu: Handle<'_>) -> Option<Named> {
    let name = session.name(gpu)?;
    let names = || {
        let instances = session.instances(gpu).into_iter();
        instances.filter_map(|instance| session.name(instance)).collect()
    };
    let instances = session.is_divided(gpu).then(names);
    Some(Named { name, instances })
}
