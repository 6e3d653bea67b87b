//! In what two devices differ, as they are described: items with `, ` between them. Must not know what an item means.

/// The items that each has and the other has not: of the worker, and then of the job's first one.
pub(super) fn difference(expected: &str, found: &str) -> String {
    let [of_job, own] = [expected, found].map(|device| device.split(", ").collect::<Vec<_>>());
    let alone = |own: &[&str], other: &[&str]| {
        let items: Vec<&str> = own.iter().copied().filter(|item| !other.contains(item)).collect();
        if items.is_empty() {
            "nothing".to_owned()
        } else {
            items.join(", ")
        }
    };
    let (own, of_job) = (alone(&own, &of_job), alone(&of_job, &own));
    format!("it alone has {own}, the first alone {of_job}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_named() {
        let first = "cuda, One (9.0), 132 multiprocessors, driver 12.8, kernels 1a";
        let newer = "cuda, One (9.0), 132 multiprocessors, driver 13.0, kernels 1a, NVIDIA_TF32_OVERRIDE=1";
        assert_eq!(
            difference(first, newer),
            "it alone has driver 13.0, NVIDIA_TF32_OVERRIDE=1, the first alone driver 12.8"
        );
        assert_eq!(difference("cpu", "cuda, One"), "it alone has cuda, One, the first alone cpu");
        assert_eq!(difference("cuda", "cuda, more"), "it alone has more, the first alone nothing");
    }
}
