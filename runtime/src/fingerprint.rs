//! What decides the bits of this process's arithmetic, as far as it can be named.

use std::io;
use std::sync::OnceLock;

use sardana_protocol::job::Fingerprint;
use sardana_protocol::limits::MAX_DEVICE_BYTES;
use sardana_protocol::state::StateHash;

/// The fingerprint of this process for a model with these `tensors`, `settings` and this `probe`, which computes on `device`.
///
/// # Errors
/// When the program's own file cannot be read.
pub(crate) fn of_this_process([tensors, settings, probe]: [StateHash; 3], device: &str) -> io::Result<Fingerprint> {
    Ok(Fingerprint {
        program: program()?,
        tensors,
        settings,
        processor: processor(),
        device: shortened(device),
        libraries: format!(
            "sardana {}, mathematics {:.8}",
            env!("CARGO_PKG_VERSION"),
            mathematics().to_string()
        ),
        probe,
    })
}

/// As much of it as a hello may say.
fn shortened(device: &str) -> String {
    let ends = device.char_indices().map(|(at, char)| at + char.len_utf8());
    let end = ends.take_while(|end| *end <= MAX_DEVICE_BYTES).last().unwrap_or(0);
    device[..end].to_owned()
}

/// The fingerprint of this process as a member of a group whose program says this of its `settings`. What the program computes is its own affair,
/// and the group's operations make the same values on every processor.
///
/// # Errors
/// When the program's own file cannot be read.
pub(crate) fn of_a_group(settings: StateHash) -> io::Result<Fingerprint> {
    let none = StateHash::of(b"");
    Ok(Fingerprint {
        program: program()?,
        tensors: none,
        settings,
        processor: std::env::consts::ARCH.to_owned(),
        device: "cpu".to_owned(),
        libraries: format!("sardana {}", env!("CARGO_PKG_VERSION")),
        probe: none,
    })
}

/// The hash of what the system's mathematical library makes of many numbers: its last bits depend on its version and on the processor, and
/// networks call it.
fn mathematics() -> StateHash {
    let single: [fn(f32) -> f32; 8] = [
        f32::exp,
        f32::ln_1p,
        f32::tanh,
        f32::sin,
        f32::cos,
        f32::exp_m1,
        f32::cbrt,
        |x| x.powf(1.7),
    ];
    let double: [fn(f64) -> f64; 8] = [
        f64::exp,
        f64::ln_1p,
        f64::tanh,
        f64::sin,
        f64::cos,
        f64::exp_m1,
        f64::cbrt,
        |x| x.powf(1.7),
    ];
    let mut hasher = blake3::Hasher::new();
    for number in 1..=512_u16 {
        // From nearly nothing to 12, unevenly.
        let x = std::hint::black_box(f64::from(number) * f64::from(number) * 4.7e-5);
        for of in single {
            hasher.update(&of(x as f32).to_le_bytes());
        }
        for of in double {
            hasher.update(&of(x).to_le_bytes());
        }
    }
    StateHash::new(hasher.finalize().into())
}

/// The hash of the program's own file: read once, as it may be large.
fn program() -> io::Result<StateHash> {
    static PROGRAM: OnceLock<StateHash> = OnceLock::new();
    match PROGRAM.get() {
        Some(&program) => Ok(program),
        None => {
            let program = hash_of_file()?;
            Ok(*PROGRAM.get_or_init(|| program))
        }
    }
}

fn hash_of_file() -> io::Result<StateHash> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(std::fs::File::open(std::env::current_exe()?)?)?;
    Ok(StateHash::new(hasher.finalize().into()))
}

/// The architecture, and the extensions by which numeric libraries choose their kernels.
fn processor() -> String {
    let mut words = vec![std::env::consts::ARCH];
    words.extend(extensions());
    words.join(" ")
}

#[cfg(target_arch = "x86_64")]
fn extensions() -> Vec<&'static str> {
    let found = [
        ("sse4.2", std::is_x86_feature_detected!("sse4.2")),
        ("avx", std::is_x86_feature_detected!("avx")),
        ("avx2", std::is_x86_feature_detected!("avx2")),
        ("fma", std::is_x86_feature_detected!("fma")),
        ("f16c", std::is_x86_feature_detected!("f16c")),
        ("avx512f", std::is_x86_feature_detected!("avx512f")),
        ("avx512bw", std::is_x86_feature_detected!("avx512bw")),
        ("avx512vnni", std::is_x86_feature_detected!("avx512vnni")),
        ("avx512bf16", std::is_x86_feature_detected!("avx512bf16")),
    ];
    found.into_iter().filter(|(_, there)| *there).map(|(name, _)| name).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn extensions() -> Vec<&'static str> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_said_as_far_as_there_is_room() {
        assert_eq!(shortened("cpu"), "cpu");
        let long = format!("{}µs", "x".repeat(MAX_DEVICE_BYTES - 1));
        assert_eq!(shortened(&long), "x".repeat(MAX_DEVICE_BYTES - 1), "no half of a letter");
    }
}
