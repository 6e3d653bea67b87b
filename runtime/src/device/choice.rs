//! What a person says of the device to compute on. Must not know which devices there are.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::str::FromStr;

use sardana_actors::agent::BUNDLE_VARIABLE;

/// The variable that says what to compute on, in the words of `--device`, which counts more where both are given. An agent sets it for its workers,
/// and there it counts more than what their program is told, since the agent has dealt out the GPUs.
pub const DEVICE_VARIABLE: &str = "SARDANA_DEVICE";

/// What to compute on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A GPU for each worker if there are any; otherwise processors.
    #[default]
    Auto,
    /// Processors.
    Cpu,
    /// A GPU for each worker, in turn if there are fewer; or the one of this number for all, counted from 0 among those that can be seen.
    Cuda(Option<u32>),
}

/// What was said is no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected `auto`, `cpu`, `cuda` or `cuda:N`, with a number N from 0 on, {place}, found {found:?}: correct it, or leave it out"
)]
pub struct DeviceChoiceError {
    place: &'static str,
    found: OsString,
}

impl DeviceChoice {
    /// What this process is to compute on, where its arguments say `argument`, if anything: that counts, then [`DEVICE_VARIABLE`], the latter first in
    /// a worker that an agent has started.
    ///
    /// # Errors
    /// When the variable says what cannot be.
    pub fn said(argument: Option<Self>) -> Result<Self, DeviceChoiceError> {
        let variable = of_variable(std::env::var_os(DEVICE_VARIABLE).as_deref())?;
        Ok(between(argument, variable, std::env::var_os(BUNDLE_VARIABLE).is_some()))
    }

    /// The same for a program that nothing else reads the arguments of: what is behind `--device` among them counts as its argument.
    ///
    /// # Errors
    /// When an argument or the variable says what cannot be.
    pub fn of_arguments() -> Result<Self, DeviceChoiceError> {
        Self::said(among(std::env::args_os().skip(1))?)
    }
}

/// What is behind `--device`, or behind `--device=`. The last one counts.
fn among(arguments: impl Iterator<Item = OsString>) -> Result<Option<DeviceChoice>, DeviceChoiceError> {
    let mut arguments = arguments;
    let mut choice = None;
    while let Some(argument) = arguments.next() {
        let found = if argument == "--device" {
            arguments.next().unwrap_or_default()
        } else if let Some(found) = argument.to_str().and_then(|text| text.strip_prefix("--device=")) {
            found.into()
        } else {
            continue;
        };
        let read = found.to_str().and_then(parsed);
        choice = Some(read.ok_or(DeviceChoiceError {
            place: "behind --device",
            found,
        })?);
    }
    Ok(choice)
}

fn of_variable(found: Option<&OsStr>) -> Result<Option<DeviceChoice>, DeviceChoiceError> {
    let Some(found) = found else { return Ok(None) };
    let refused = || DeviceChoiceError {
        place: "in SARDANA_DEVICE",
        found: found.to_owned(),
    };
    let text = found.to_str().ok_or_else(refused)?;
    parsed(text).map(Some).ok_or_else(refused)
}

fn between(argument: Option<DeviceChoice>, variable: Option<DeviceChoice>, is_worker: bool) -> DeviceChoice {
    let (first, second) = if is_worker {
        (variable, argument)
    } else {
        (argument, variable)
    };
    first.or(second).unwrap_or_default()
}

fn parsed(text: &str) -> Option<DeviceChoice> {
    match text {
        "auto" => Some(DeviceChoice::Auto),
        "cpu" => Some(DeviceChoice::Cpu),
        "cuda" => Some(DeviceChoice::Cuda(None)),
        _ => {
            let number = text.strip_prefix("cuda:")?;
            // Not `+1`, which the parser takes for a number.
            let is_plain = number.bytes().all(|byte| byte.is_ascii_digit());
            let number = number.parse().ok().filter(|_| is_plain)?;
            Some(DeviceChoice::Cuda(Some(number)))
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = DeviceChoiceError;

    fn from_str(text: &str) -> Result<Self, DeviceChoiceError> {
        parsed(text).ok_or_else(|| DeviceChoiceError {
            place: "as a device",
            found: text.into(),
        })
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(None) => f.write_str("cuda"),
            Self::Cuda(Some(number)) => write!(f, "cuda:{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_as_they_print() {
        for choice in [
            DeviceChoice::Auto,
            DeviceChoice::Cpu,
            DeviceChoice::Cuda(None),
            DeviceChoice::Cuda(Some(0)),
            DeviceChoice::Cuda(Some(7)),
        ] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        for wrong in [
            "",
            "gpu",
            "CUDA",
            "cuda:",
            "cuda:-1",
            "cuda:+1",
            "cuda:x",
            "cuda:4294967296",
            "cpu ",
        ] {
            let refused = wrong.parse::<DeviceChoice>().unwrap_err().to_string();
            assert!(
                refused.starts_with("expected `auto`, `cpu`, `cuda` or `cuda:N`") && refused.contains(&format!("{wrong:?}")),
                "{refused}"
            );
        }
        let refused = of_variable(Some(OsStr::new("tpu"))).unwrap_err().to_string();
        assert!(refused.contains("in SARDANA_DEVICE, found \"tpu\""), "{refused}");
        assert_eq!(of_variable(None), Ok(None));
    }

    #[test]
    fn a_device_is_found_among_arguments() {
        let of = |arguments: &[&str]| among(arguments.iter().map(OsString::from));
        assert_eq!(of(&["data.csv", "--devices"]), Ok(None));
        assert_eq!(
            of(&["--device", "cpu", "--device=cuda:1"]),
            Ok(Some(DeviceChoice::Cuda(Some(1))))
        );
        for (wrong, found) in [
            (&["--device"][..], ""),
            (&["--device=gpu"], "gpu"),
            (&["--device", "--device"], "--device"),
        ] {
            let refused = of(wrong).unwrap_err().to_string();
            assert!(refused.contains(&format!("behind --device, found {found:?}")), "{refused}");
        }
    }

    #[test]
    fn an_argument_counts_more_than_the_environment_but_for_a_worker_of_an_agent() {
        let (cpu, cuda) = (DeviceChoice::Cpu, DeviceChoice::Cuda(None));
        assert_eq!(between(Some(cpu), Some(cuda), false), cpu);
        assert_eq!(between(Some(cpu), Some(cuda), true), cuda);
        assert_eq!(between(Some(cpu), None, true), cpu);
        assert_eq!(between(None, Some(cuda), false), cuda);
        assert_eq!(between(None, None, true), DeviceChoice::Auto);
    }
}
