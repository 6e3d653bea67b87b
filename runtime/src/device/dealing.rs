//! The GPUs of a host dealt out to the workers of an agent: each sees one of them alone, by its berth, so that a worker that replaces another gets
//! what that had. Must not know what is computed.

use std::ffi::OsString;

use super::choice::{DEVICE_VARIABLE, DeviceChoice};
use super::gpus::{GPUS_VARIABLE, NoGpu, named, of_this_machine};
use super::own::usable;

/// What the workers of an agent find in their environment of devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dealt {
    berths: Vec<Vec<(OsString, OsString)>>,
    note: Note,
}

/// What a person is told of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Note {
    #[default]
    Nothing,
    /// They were to have GPUs if there are any, and there are none.
    Processors { reason: String },
    /// They have GPUs.
    Gpus { gpus: Vec<String>, workers: u32 },
}

impl Dealt {
    /// Deals out what this process may see of this machine's GPUs to so many workers.
    ///
    /// # Errors
    /// When they are to compute on GPUs, and there are none that can be named.
    pub fn on_this_host(choice: DeviceChoice, workers: u32) -> Result<Self, NoGpu> {
        if let DeviceChoice::Cuda(_) = choice {
            usable(choice)?;
        }
        let dealt = deal(choice, workers, std::env::var_os(GPUS_VARIABLE), of_this_machine)?;
        Ok(dealt.where_usable(choice, usable))
    }

    /// What is dealt where none has to be used: that there are GPUs does not say that one of them can be.
    fn where_usable(self, choice: DeviceChoice, usable: impl FnOnce(DeviceChoice) -> Result<(), NoGpu>) -> Self {
        match (choice, &self.note) {
            (DeviceChoice::Auto, Note::Gpus { .. }) => match usable(choice) {
                Ok(()) => self,
                Err(NoGpu::None { reason, .. }) => on_processors(reason),
                Err(none) => on_processors(none.to_string()),
            },
            (DeviceChoice::Auto | DeviceChoice::Cpu | DeviceChoice::Cuda(_), _) => self,
        }
    }

    /// What those of each berth find in their environment, in turn.
    #[must_use]
    pub fn into_berths(self) -> Vec<Vec<(OsString, OsString)>> {
        self.berths
    }

    /// Logs what the workers have, once for all.
    pub fn log(&self) {
        match &self.note {
            Note::Nothing => {}
            Note::Processors { reason } => {
                tracing::info!(target: "sardana::event::device", %reason, "workers compute on processors");
            }
            Note::Gpus { gpus, workers } if (gpus.len() as u64) < u64::from(*workers) => {
                tracing::warn!(target: "sardana::event::sharing", workers, gpus = %gpus.join(" "), "there are fewer GPUs than workers: they share them in turn, and their memory");
            }
            Note::Gpus { gpus, workers } => {
                tracing::info!(target: "sardana::event::device", workers, gpus = %gpus.join(" "), "each worker is given a GPU of its own");
            }
        }
    }
}

fn deal(
    choice: DeviceChoice,
    workers: u32,
    visible: Option<OsString>,
    machine: impl FnOnce() -> Result<Vec<String>, String>,
) -> Result<Dealt, NoGpu> {
    if choice == DeviceChoice::Cpu {
        return Ok(Dealt {
            berths: vec![vec![said("cpu")]],
            note: Note::Nothing,
        });
    }
    let gpus = match visible {
        Some(variable) => named(variable).and_then(|gpus| {
            if gpus.is_empty() {
                Err(NoGpu::Hidden(choice))
            } else {
                Ok(gpus)
            }
        }),
        None => machine().map_err(|reason| NoGpu::None { asked: choice, reason }),
    };
    match (choice, gpus) {
        (DeviceChoice::Auto, Err(NoGpu::None { reason, .. })) => Ok(on_processors(reason)),
        (DeviceChoice::Auto, Err(hidden @ NoGpu::Hidden(_))) => Ok(on_processors(hidden.to_string())),
        (_, Err(error)) => Err(error),
        (DeviceChoice::Cuda(Some(number)), Ok(gpus)) => {
            let found = gpus.len();
            let own = usize::try_from(number).ok().and_then(|place| gpus.into_iter().nth(place));
            let own = own.ok_or(NoGpu::Number { asked: number, found })?;
            Ok(on_gpus(vec![own], workers, true))
        }
        (DeviceChoice::Cuda(None), Ok(gpus)) => Ok(on_gpus(gpus, workers, true)),
        // What the program is told of devices counts, should it be told.
        (DeviceChoice::Auto | DeviceChoice::Cpu, Ok(gpus)) => Ok(on_gpus(gpus, workers, false)),
    }
}

const fn on_processors(reason: String) -> Dealt {
    Dealt {
        berths: Vec::new(),
        note: Note::Processors { reason },
    }
}

fn on_gpus(gpus: Vec<String>, workers: u32, must: bool) -> Dealt {
    let berth = |gpu: &String| {
        let own = (GPUS_VARIABLE.into(), gpu.into());
        must.then(|| said("cuda")).into_iter().chain([own]).collect()
    };
    Dealt {
        berths: gpus.iter().map(berth).collect(),
        note: Note::Gpus { gpus, workers },
    }
}

fn said(device: &str) -> (OsString, OsString) {
    (DEVICE_VARIABLE.into(), device.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUDA: DeviceChoice = DeviceChoice::Cuda(None);

    fn two() -> Result<Vec<String>, String> {
        Ok(["0", "1"].map(str::to_owned).to_vec())
    }

    fn none() -> Result<Vec<String>, String> {
        Err("no driver".to_owned())
    }

    /// The berths as text.
    fn berths(dealt: Result<Dealt, NoGpu>) -> Vec<String> {
        let one = |(name, value): &(OsString, OsString)| format!("{}={}", name.display(), value.display());
        let berths = dealt.unwrap().into_berths();
        berths
            .iter()
            .map(|berth| berth.iter().map(one).collect::<Vec<_>>().join(" "))
            .collect()
    }

    #[test]
    fn each_berth_sees_one_gpu_alone() {
        let of = |choice, visible: Option<&str>| berths(deal(choice, 2, visible.map(OsString::from), two));
        let both = ["0", "1"].map(|gpu| format!("SARDANA_DEVICE=cuda CUDA_VISIBLE_DEVICES={gpu}"));
        assert_eq!(of(CUDA, None), both);
        assert_eq!(of(DeviceChoice::Cuda(Some(1)), None), both[1..]);
        // What was hidden stays so, and names stay names.
        let seen = [
            "SARDANA_DEVICE=cuda CUDA_VISIBLE_DEVICES=GPU-a",
            "SARDANA_DEVICE=cuda CUDA_VISIBLE_DEVICES=3",
        ];
        assert_eq!(of(CUDA, Some("GPU-a,3")), seen);
        assert_eq!(of(DeviceChoice::Cuda(Some(1)), Some("GPU-a,3")), seen[1..]);
        assert_eq!(of(DeviceChoice::Auto, Some("3")), ["CUDA_VISIBLE_DEVICES=3"]);
        let instances = ["MIG-a1/2/0", "MIG-b2"].map(|gpu| format!("CUDA_VISIBLE_DEVICES={gpu}"));
        assert_eq!(of(DeviceChoice::Auto, Some("MIG-a1/2/0,MIG-b2")), instances);
        assert_eq!(of(DeviceChoice::Cpu, Some("nonsense")), ["SARDANA_DEVICE=cpu"]);
    }

    #[test]
    fn without_gpus_auto_is_processors_and_cuda_an_error_with_the_reason() {
        let auto = deal(DeviceChoice::Auto, 2, None, none).unwrap();
        assert_eq!(auto, on_processors("no driver".to_owned()));
        let refused = deal(CUDA, 2, None, none).unwrap_err().to_string();
        assert_eq!(refused, "expected a GPU for `--device cuda`, found none: no driver");
        // An empty list of GPUs is a person's word that there be none.
        let hidden = deal(DeviceChoice::Auto, 2, Some(OsString::new()), two).unwrap();
        assert!(
            hidden.berths.is_empty() && matches!(hidden.note, Note::Processors { .. }),
            "{hidden:?}"
        );
        assert_eq!(deal(CUDA, 2, Some(OsString::new()), two), Err(NoGpu::Hidden(CUDA)));
        // A list that makes no sense says neither.
        let wrong = || Some(OsString::from("all"));
        assert_eq!(deal(DeviceChoice::Auto, 2, wrong(), two), Err(NoGpu::Names("all".into())));
        assert_eq!(
            deal(DeviceChoice::Cuda(Some(2)), 2, None, two),
            Err(NoGpu::Number { asked: 2, found: 2 })
        );
    }

    #[test]
    fn gpus_that_cannot_be_used_are_dealt_to_none_that_may_do_without() {
        let dealt = |choice| deal(choice, 2, None, two).unwrap();
        let refused = |asked| {
            let reason = "too old".to_owned();
            Err(NoGpu::None { asked, reason })
        };
        let auto = DeviceChoice::Auto;
        assert_eq!(dealt(auto).where_usable(auto, refused), on_processors("too old".to_owned()));
        assert_eq!(dealt(auto).where_usable(auto, |_| Ok(())), dealt(auto));
        assert_eq!(dealt(CUDA).where_usable(CUDA, refused), dealt(CUDA), "asked before");
    }

    #[test]
    fn it_is_said_when_workers_share() {
        for (workers, share) in [(2, false), (3, true)] {
            let Note::Gpus { gpus, workers } = deal(CUDA, workers, None, two).unwrap().note else {
                panic!("there are GPUs");
            };
            assert_eq!((gpus.len() as u32) < workers, share);
        }
    }
}
