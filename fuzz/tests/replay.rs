//! What once led somewhere new, or to a mistake, is tried again, with some inputs made of it: the same ones each time.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use sardana_fuzz::TARGETS;

/// Inputs made of each file that is kept: all of a target's take about a second.
const MADE_OF_EACH: u64 = 40;

/// A target without as many files to begin with only sees that what is no message at all is none.
const LEAST_KEPT: usize = 2;

#[test]
fn every_decoder_bears_what_is_kept_and_what_is_made_of_it() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, target) in TARGETS {
        let mut kept: Vec<_> = fs::read_dir(corpus.join(name))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        kept.sort();
        assert!(kept.len() >= LEAST_KEPT, "{name} has {} files", kept.len());
        let all: Vec<Vec<u8>> = kept.iter().map(|path| fs::read(path).unwrap()).collect();
        target(&[]);
        for (path, bytes) in kept.iter().zip(&all) {
            assert!(catch_unwind(|| target(bytes)).is_ok(), "{name}: {}", path.display());
            for seed in 0..MADE_OF_EACH {
                let made = made(&mut Dice::new(bytes, seed), bytes, &all);
                let shown = || made.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
                assert!(
                    catch_unwind(|| target(&made)).is_ok(),
                    "{name}, of {}: {}",
                    path.display(),
                    shown()
                );
            }
        }
    }
}

#[test]
fn every_folder_of_the_corpus_belongs_to_a_target() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut found: Vec<String> = fs::read_dir(corpus)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    let mut expected = TARGETS.map(|(name, _)| name);
    expected.sort_unstable();
    assert_eq!(found, expected);
}

/// Some of `bytes`, changed in a few places, or with a part of another input.
fn made(dice: &mut Dice, bytes: &[u8], all: &[Vec<u8>]) -> Vec<u8> {
    let mut made = bytes.to_vec();
    for _ in 0..=dice.below(4) {
        let at = dice.below(made.len() + 1);
        match dice.below(6) {
            0 => made.truncate(at),
            1 => made.insert(at, dice.byte()),
            2 => {
                let other = &all[dice.below(all.len())];
                let from = dice.below(other.len() + 1);
                made.splice(at.., other[from..].iter().copied());
            }
            3 => {
                let number = [0, 1, 0x7f, 0xfb, 0xfc, 0xfd, 0xff][dice.below(7)];
                if let Some(byte) = made.get_mut(at) {
                    *byte = number;
                }
            }
            4 => {
                let end = made.len().min(at + 8);
                made[at..end].fill(0xff);
            }
            _ => {
                if let Some(byte) = made.get_mut(at) {
                    *byte ^= 1 << dice.below(8);
                }
            }
        }
    }
    made
}

/// The same numbers for the same beginning.
struct Dice(blake3::OutputReader);

impl Dice {
    fn new(bytes: &[u8], seed: u64) -> Self {
        Self(blake3::Hasher::new().update(bytes).update(&seed.to_le_bytes()).finalize_xof())
    }

    fn byte(&mut self) -> u8 {
        let mut byte = [0];
        self.0.fill(&mut byte);
        byte[0]
    }

    fn below(&mut self, most: usize) -> usize {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        usize::try_from(u64::from_le_bytes(bytes) % most as u64).unwrap()
    }
}
