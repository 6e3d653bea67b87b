//! Plans, carried out by a model that writes down what is added to which element, and in which order.

use std::num::NonZeroUsize;
use std::ops::Range;

use super::*;

/// What an element of the sum is made of: the numbers of shards in the order of additions; the sum that came counts as `CAME`.
type Terms = Vec<usize>;
const CAME: usize = usize::MAX;

/// What is in a slot: of which elements, whether it came down, and what each is made of.
type Slot = (Range<usize>, bool, Vec<Terms>);

/// A device as far as a plan can tell. Whatever must not be is an error.
#[derive(Default)]
struct Model {
    sum: Vec<Terms>,
    slots: Vec<Option<Slot>>,
    awaited: Vec<usize>,
    delivered: Vec<Terms>,
    released: bool,
}

impl Model {
    fn carry_out(visit: &Visit, steps: &[Step]) -> Result<Self, String> {
        let mut model = Self {
            sum: vec![vec![]; visit.elements],
            slots: vec![None; visit.slots.get()],
            ..Self::default()
        };
        for step in steps {
            model.step(visit, step).map_err(|wrong| format!("{step:?}: {wrong}"))?;
        }
        Ok(model)
    }

    fn step(&mut self, visit: &Visit, step: &Step) -> Result<(), &'static str> {
        if self.released {
            return Err("what was released is used");
        }
        match step.clone() {
            Step::Await { shard } if visit.shards[shard] == Place::Device => self.awaited.push(shard),
            Step::Await { .. } => return Err("a spilled shard is awaited"),
            Step::Receive { range, slot } => {
                if self.slots[slot].as_ref().is_some_and(|(_, lowered, _)| *lowered) {
                    return Err("what is in the slot was not delivered");
                }
                self.slots[slot] = Some((range.clone(), false, vec![vec![CAME]; range.len()]));
            }
            Step::Raise { range, slot } => {
                let (own, lowered, terms) = self.slots[slot].take().ok_or("the slot is empty")?;
                if own != range || lowered {
                    return Err("the slot has something else");
                }
                self.sum[range].clone_from_slice(&terms);
            }
            Step::Begin { range, shards } => {
                self.sum[range.clone()].iter_mut().for_each(Vec::clear);
                self.add(visit, range, shards, Place::Device)?;
            }
            Step::BeginSpilled { range, shard } => {
                self.sum[range.clone()].iter_mut().for_each(Vec::clear);
                self.add(visit, range, shard..shard + 1, Place::Spilled)?;
            }
            Step::Add { range, shards } => self.add(visit, range, shards, Place::Device)?,
            Step::AddSpilled { range, shard } => self.add(visit, range, shard..shard + 1, Place::Spilled)?,
            Step::Lower { range, slot } => {
                if self.slots[slot].is_some() {
                    return Err("the slot is full");
                }
                self.slots[slot] = Some((range.clone(), true, self.sum[range].to_vec()));
            }
            Step::Deliver { range, slot } => {
                let (own, lowered, terms) = self.slots[slot].take().ok_or("the slot is empty")?;
                if own != range || !lowered || range.start != self.delivered.len() {
                    return Err("the slot has something else, or another chunk is next");
                }
                self.delivered.extend(terms);
            }
            Step::Release => self.released = true,
        }
        Ok(())
    }

    fn add(&mut self, visit: &Visit, range: Range<usize>, shards: Range<usize>, place: Place) -> Result<(), &'static str> {
        if shards.is_empty() {
            return Err("nothing is added");
        }
        for shard in shards {
            if visit.shards[shard] != place || (place == Place::Device && !self.awaited.contains(&shard)) {
                return Err("the shard lies elsewhere, or is not awaited");
            }
            self.sum[range.clone()].iter_mut().for_each(|terms| terms.push(shard));
        }
        Ok(())
    }
}

/// Whether these steps give what the visit is for.
fn judge(visit: &Visit, steps: &[Step]) -> Result<(), String> {
    let model = Model::carry_out(visit, steps)?;
    let begins = matches!(visit.role, Role::First | Role::Alone);
    let came = (!begins).then_some(CAME);
    let expected: Terms = came.into_iter().chain(0..visit.shards.len()).collect();
    let all = vec![expected; visit.elements];
    if model.sum != all {
        return Err(format!("the sum is {:?}", model.sum));
    }
    if visit.role != Role::Alone && model.delivered != all {
        return Err(format!("delivered is {:?}", model.delivered));
    }
    if !model.released || model.slots.iter().any(Option::is_some) {
        return Err("something is left".to_owned());
    }
    Ok(())
}

const ROLES: [Role; 4] = [Role::First, Role::Middle, Role::Closer, Role::Alone];

fn visit(role: Role, shards: &[Place], elements: usize, [chunk, slots]: [usize; 2]) -> Visit {
    let [chunk, slots] = [chunk, slots].map(|count| NonZeroUsize::new(count).unwrap());
    Visit {
        role,
        shards: shards.to_vec(),
        elements,
        chunk,
        slots,
    }
}

/// Every way in which up to four shards lie, in every role, with every length and number of chunks up to some.
fn visits() -> impl Iterator<Item = Visit> {
    let shapes = (0..6).flat_map(|elements| (1..4).flat_map(move |chunk| (1..4).map(move |slots| (elements, chunk, slots))));
    shapes.flat_map(|(elements, chunk, slots)| {
        let places = (1..5).flat_map(|count| (0..1_u32 << count).map(move |bits| (count, bits)));
        places.flat_map(move |(count, bits)| {
            let place = move |shard: u32| {
                if bits & (1 << shard) == 0 {
                    Place::Device
                } else {
                    Place::Spilled
                }
            };
            let shards: Vec<Place> = (0..count).map(place).collect();
            ROLES.map(|role| visit(role, &shards, elements, [chunk, slots]))
        })
    })
}

#[test]
fn each_shard_is_added_to_each_element_once_and_in_order() {
    for visit in visits() {
        judge(&visit, &visit.steps()).unwrap_or_else(|wrong| panic!("{visit:?}: {wrong}"));
    }
}

#[test]
fn a_plan_without_one_of_its_steps_or_with_one_twice_is_wrong() {
    let shards = vec![Place::Device, Place::Device, Place::Spilled, Place::Device];
    for role in ROLES {
        let visit = visit(role, &shards, 5, [2, 2]);
        let steps = visit.steps();
        for at in 0..steps.len() {
            let mut without = steps.clone();
            let step = without.remove(at);
            assert!(judge(&visit, &without).is_err(), "{role:?} without {step:?}");
            if !matches!(step, Step::Await { .. }) {
                let mut twice = steps.clone();
                twice.insert(at, step);
                let is_reception = matches!(
                    twice[at],
                    Step::Receive { .. } | Step::Begin { .. } | Step::BeginSpilled { .. }
                );
                assert_eq!(
                    judge(&visit, &twice).is_err(),
                    !is_reception,
                    "{role:?} with {:?} twice",
                    twice[at]
                );
            }
        }
    }
}

#[test]
fn a_finished_sum_comes_up_where_it_is_not() {
    for visit in visits() {
        let model = Model::carry_out(&visit, &visit.landing()).unwrap_or_else(|wrong| panic!("{visit:?}: {wrong}"));
        let comes = matches!(visit.role, Role::First | Role::Middle);
        let expected = if comes { vec![CAME] } else { vec![] };
        assert_eq!(model.sum, vec![expected; visit.elements], "{visit:?}");
        assert!(model.released);
    }
}

#[test]
fn bytes_that_cross_are_those_of_the_table() {
    const G: u64 = 1 << 30;
    let bytes = |role, shards: &[Place]| visit(role, shards, 1, [1, 1]).bytes(G);
    let all = [Place::Device; 8];
    assert_eq!(ROLES.map(|role| bytes(role, &all)), [[G, G], [G, 2 * G], [G, G], [0, 0]]);
    let some = [Place::Device, Place::Spilled, Place::Spilled];
    assert_eq!(
        ROLES.map(|role| bytes(role, &some)),
        [[3 * G, 3 * G], [3 * G, 4 * G], [3 * G, 3 * G], [2 * G, 2 * G]]
    );
}

#[test]
fn bytes_of_the_steps_are_those_that_are_told() {
    for visit in visits() {
        let (mut down, mut up) = (0, 0);
        let spilled = visit.shards.iter().filter(|place| **place == Place::Spilled).count();
        // A shard is spilled as a whole, before the sum comes.
        down += spilled * visit.elements;
        for step in visit.steps().into_iter().chain(visit.landing()) {
            match step {
                Step::Lower { range, .. } => down += range.len(),
                Step::Raise { range, .. } | Step::BeginSpilled { range, .. } | Step::AddSpilled { range, .. } => {
                    up += range.len()
                }
                Step::Await { .. }
                | Step::Receive { .. }
                | Step::Begin { .. }
                | Step::Add { .. }
                | Step::Deliver { .. }
                | Step::Release => {}
            }
        }
        assert_eq!([down as u64, up as u64], visit.bytes(visit.elements as u64), "{visit:?}");
    }
}

#[test]
fn shards_stay_on_the_device_as_far_as_they_fit() {
    let spilled = |shards, bytes, room| {
        let places = places(shards, bytes, room);
        assert_eq!(places.len(), shards);
        places.iter().position(|place| *place == Place::Spilled).unwrap_or(shards)
    };
    assert_eq!(spilled(4, 10, 39), 3);
    assert_eq!(spilled(4, 10, 40), 4);
    assert_eq!(spilled(4, 10, 9), 0);
    assert_eq!(spilled(4, 10, u64::MAX), 4);
    assert_eq!(spilled(4, 0, 0), 4);
    assert_eq!(spilled(0, 10, 0), 0);
}

#[test]
fn where_no_shard_is_no_sum_comes_by() {
    for role in ROLES {
        assert_eq!(visit(role, &[], 3, [1, 1]).steps(), []);
    }
}
