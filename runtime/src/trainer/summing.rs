//! A model that offers another means of summing than links: in fast order alone, and equal on all workers.

use std::sync::Arc;

use sardana_collectives::layout::Layout;
use sardana_collectives::summation::{Communicator, DEVICE_BYTES, Gathering, MEETING_BYTES, Summation, SummationError};
use sardana_protocol::job::{JobSpec, Order};

use super::{Prepared, TrainingError, prepare};
use crate::model::toys::{Line, line_spec};

#[derive(Debug)]
struct Abacus;

impl Summation for Abacus {
    fn name(&self) -> &'static str {
        "an abacus"
    }

    fn device(&self, _: &Layout) -> Result<[u8; DEVICE_BYTES], SummationError> {
        Err(SummationError::new("expected to be asked by a ring only"))
    }

    fn meet(&self) -> Result<[u8; MEETING_BYTES], SummationError> {
        Err(SummationError::new("expected ranks that all can take part"))
    }

    fn begin(&self, _: Gathering) -> Box<dyn Communicator> {
        panic!("it has no device")
    }
}

fn prepared(order: Order, summation: Option<Arc<dyn Summation>>) -> Result<Prepared<Line>, TrainingError> {
    let spec = JobSpec { order, ..line_spec(3) };
    prepare(&spec, |_| {
        Ok(Line {
            summation,
            ..Line::default()
        })
    })
}

#[test]
fn exact_order_refuses_it_and_says_why() {
    let Err(error) = prepared(Order::Exact, Some(Arc::new(Abacus))) else {
        panic!("it is refused");
    };
    let words = error.to_string();
    assert!(
        words.starts_with("expected order fast for gradients that are summed by an abacus, found exact: an abacus chooses itself in which order it adds"),
        "{words}"
    );
}

#[test]
fn workers_that_offer_different_ones_are_told_apart() {
    let with = prepared(Order::Fast, Some(Arc::new(Abacus))).unwrap().facts;
    let without = prepared(Order::Fast, None).unwrap().facts;
    assert!(with.summation.is_some() && without.summation.is_none());
    assert_ne!(with.identity.fingerprint.settings, without.identity.fingerprint.settings);
    assert_eq!(with.identity.spec, without.identity.spec);
}
