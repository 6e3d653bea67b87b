//! Which device each berth of an agent has, and how many workers have the same. Part of its actor.

use std::ffi::OsString;

use sardana_protocol::memory::SHARERS_VARIABLE;

use super::actor::State;

/// Which GPUs a process may see, by CUDA's word.
pub const GPUS_VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

impl State {
    /// What a child of this berth finds in its environment besides: its device, and how many have the same.
    pub(super) fn in_berth(&self, berth: usize) -> Vec<(OsString, OsString)> {
        let berths = &self.config.berths;
        let Some(own) = berths.get(berth % berths.len().max(1)) else {
            return Vec::new();
        };
        let sharers = sharers(berth, berths.len(), self.wanted());
        let told = (SHARERS_VARIABLE.into(), sharers.to_string().into());
        own.iter().cloned().chain([told]).collect()
    }

    /// How many workers there are, or are to be.
    pub(super) fn wanted(&self) -> u32 {
        self.left().max(self.config.workers).max(1)
    }

    /// Says once for each number of workers that several of them have the same GPU, where it was not so when the agent began.
    pub(super) fn tell_of_sharing(&mut self) {
        let (workers, berths) = (self.left(), &self.config.berths);
        let are_gpus = berths.iter().flatten().any(|(name, _)| name == GPUS_VARIABLE);
        if are_gpus && workers as usize > berths.len() && workers > self.most_sharing {
            self.most_sharing = workers;
            tracing::warn!(target: "sardana::event::sharing", workers, gpus = berths.len(), "there are fewer GPUs than workers now: they share them in turn, and their memory");
        }
    }
}

/// How many of so many workers have the device of this berth, where those of `devices` berths are dealt out in turn. One, at least.
fn sharers(berth: usize, devices: usize, workers: u32) -> usize {
    let (own, workers) = (berth % devices.max(1), workers as usize);
    workers.saturating_sub(own).div_ceil(devices.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_shared_by_those_that_have_them_in_turn() {
        let of = |devices, workers| -> Vec<usize> {
            (0..workers).map(|berth| sharers(berth as usize, devices, workers)).collect()
        };
        assert_eq!(of(2, 2), [1, 1]);
        assert_eq!(of(2, 3), [2, 1, 2]);
        assert_eq!(of(1, 3), [3, 3, 3]);
        assert_eq!(of(4, 2), [1, 1]);
        assert_eq!(sharers(7, 4, 2), 1, "a worker has its own device");
    }
}
