//! BITS-1 for both examples: however many workers compute, as threads, the final state is that of the plain loop.

use sardana::{local, reference};
use sardana_examples::digits;
use sardana_examples::linear_regression::{self, LinearRegression};

#[test]
fn linear_regression_ends_in_one_state() {
    let spec = linear_regression::spec();
    let expected = reference::train(&spec, &mut LinearRegression::new(&spec).unwrap()).unwrap();
    for workers in [1, 2, 3, 4, 5, 8, 11] {
        let found = local::train(&spec, workers, LinearRegression::new).unwrap();
        assert_eq!(found.hash, expected.hash, "BITS-1, {workers} workers");
        assert_eq!(found.reports, expected.reports, "{workers} workers");
        assert_eq!(found.results, expected.results, "{workers} workers");
    }
}

#[test]
fn digits_end_in_one_state() {
    let mut spec = digits::spec();
    spec.steps = sardana::Step::new(60);
    let expected = reference::train(&spec, &mut digits::model(&spec).unwrap()).unwrap();
    for workers in [1, 2, 3, 4, 5, 8] {
        let found = local::train(&spec, workers, digits::model).unwrap();
        assert_eq!(found.hash, expected.hash, "BITS-1, {workers} workers");
        assert_eq!(found.reports, expected.reports, "{workers} workers");
    }
}

#[test]
fn fast_order_is_close_but_makes_no_promise() {
    let mut spec = linear_regression::spec();
    let exact = reference::train(&spec, &mut LinearRegression::new(&spec).unwrap()).unwrap();
    spec.order = sardana::Order::Fast;
    let fast = local::train(&spec, 4, LinearRegression::new).unwrap();
    for ((name, exact), (_, fast)) in exact.results.iter().zip(&fast.results) {
        assert!(
            (exact - fast).abs() <= 1e-6 * exact.abs(),
            "{name}: {fast} is not close to {exact}"
        );
    }
}
