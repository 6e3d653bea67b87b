//! Messages that were never meant: a real one, changed in some places to what is at the edge of what a field can say, or to what another
//! field has said. Knows no message: whatever can be written down can be changed, and a field that is new is changed as well.

use std::collections::VecDeque;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::dice::Dice;

/// So many numbers are remembered that messages have said.
const HEARD: usize = 96;

/// A change that makes no message of its type is tried again so often.
const TRIES: u32 = 40;

/// Numbers at the edges of their types and of what the limits allow.
const EDGES: [u64; 16] = [
    0,
    1,
    2,
    3,
    255,
    1 << 12,
    (1 << 12) + 1,
    1 << 16,
    u32::MAX as u64 - 1,
    u32::MAX as u64,
    1 << 32,
    1 << 48,
    (1 << 48) + 1,
    i64::MAX as u64,
    u64::MAX - 1,
    u64::MAX,
];

/// Names of variants without fields.
const WORDS: [&str; 12] = [
    "More",
    "All",
    "Whole",
    "Broken",
    "Lacking",
    "Yes",
    "No",
    "None",
    "Continue",
    "Stop",
    "Snapshot",
    "Checkpoint",
];

/// What has been said, to say it elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Ear {
    numbers: VecDeque<u64>,
}

impl Ear {
    /// Remembers the numbers of a message.
    pub(crate) fn hear(&mut self, message: &impl Serialize) {
        if let Ok(value) = serde_json::to_value(message) {
            self.note(&value);
        }
    }

    fn note(&mut self, value: &Value) {
        match value {
            Value::Number(number) => self.numbers.extend(number.as_u64()),
            Value::Array(list) if !is_name(list) => list.iter().for_each(|one| self.note(one)),
            Value::Object(map) => map.values().for_each(|one| self.note(one)),
            Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) => {}
        }
        let surplus = self.numbers.len().saturating_sub(HEARD);
        self.numbers.drain(..surplus);
    }

    fn number(&self, dice: &mut Dice) -> u64 {
        if self.numbers.is_empty() || dice.once_in(3) {
            return EDGES[dice.index(EDGES.len())];
        }
        let heard = self.numbers[dice.index(self.numbers.len())];
        match dice.below(4) {
            0 => heard.wrapping_add(1),
            1 => heard.wrapping_sub(1),
            _ => heard,
        }
    }

    /// The message with some places changed. As it is, if no change made one.
    pub(crate) fn changed<T: Serialize + DeserializeOwned + Clone>(&self, message: &T, dice: &mut Dice) -> T {
        let Ok(value) = serde_json::to_value(message) else {
            return message.clone();
        };
        for _ in 0..TRIES {
            let mut other = value.clone();
            for _ in 0..=dice.below(3) {
                let place = dice.index(places(&other));
                self.change(&mut other, place, dice);
            }
            if let Ok(changed) = serde_json::from_value(other) {
                return changed;
            }
        }
        message.clone()
    }

    /// Changes the place of this number.
    fn change(&self, value: &mut Value, mut place: usize, dice: &mut Dice) {
        match value {
            Value::Object(map) => {
                for one in map.values_mut() {
                    let size = places(one);
                    if place < size {
                        return self.change(one, place, dice);
                    }
                    place -= size;
                }
            }
            Value::Array(list) if !is_name(list) && place > 0 => {
                place -= 1;
                for one in list {
                    let size = places(one);
                    if place < size {
                        return self.change(one, place, dice);
                    }
                    place -= size;
                }
            }
            Value::Array(list) if is_name(list) => {
                let at = dice.index(list.len());
                list[at] = dice.below(256).into();
            }
            Value::Array(list) => resize(list, dice),
            Value::String(text) => match dice.below(3) {
                0 => *text = "x".repeat(5_000),
                _ => WORDS[dice.index(WORDS.len())].clone_into(text),
            },
            Value::Number(_) if dice.once_in(12) => *value = Value::Null,
            Value::Number(_) | Value::Null => *value = self.number(dice).into(),
            Value::Bool(yes) => *yes = !*yes,
        }
    }
}

fn resize(list: &mut Vec<Value>, dice: &mut Dice) {
    match (dice.below(5), list.first().cloned()) {
        (0, _) => list.clear(),
        (1, Some(first)) => list.push(first),
        (2, Some(first)) => list.extend(vec![first; 300]),
        (3, Some(_)) => list.reverse(),
        (_, Some(_)) => drop(list.pop()),
        (_, None) => {}
    }
}

/// Whether it is a hash or an id, which is one thing.
fn is_name(list: &[Value]) -> bool {
    list.len() >= 16 && list.iter().all(|one| one.as_u64().is_some_and(|byte| byte < 256))
}

/// How many places a value has.
fn places(value: &Value) -> usize {
    match value {
        Value::Array(list) if is_name(list) => 1,
        Value::Array(list) => 1 + list.iter().map(places).sum::<usize>(),
        Value::Object(map) => map.values().map(places).sum::<usize>().max(1),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}
