//! What has come over a stream and is not read yet, in the runs in which the transport has it. Knows where frames end, and no streams.
//!
//! ```text
//! | what came with one packet | the next packet's | … |
//! | header | payload        | header | payload  | …          wherever packets begin and end
//! ```

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

use super::frame::HEADER_BYTES;
use crate::limits::{LEAST_RUN_BYTES, MOST_RUNS};
use crate::runs::{MOST_ELEMENT_BYTES, Runs};

/// What has come and is not read. As [`Runs`] it is what is left of the frame whose payload was begun.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    runs: VecDeque<Bytes>,
    /// Bytes in all runs.
    bytes: usize,
    /// Of these the first have been handed out. They are let go of with the next that are.
    read: usize,
    /// Bytes of the frame that are not read.
    left: usize,
    /// An element that lies in two runs.
    element: [u8; MOST_ELEMENT_BYTES],
    /// Bytes of the longest run so far.
    longest: usize,
}

impl Backlog {
    /// Goes over what its reader has left of a frame.
    pub(super) fn end_frame(&mut self) {
        self.skip(self.left);
    }

    /// Whether so many bytes, from what is read next on, have come.
    pub(super) fn has(&self, bytes: usize) -> bool {
        self.bytes - self.read >= bytes
    }

    /// So many runs, if they are as long as the longest so far, are all that is missing of the first `bytes` bytes that are not read.
    pub(super) fn runs_until(&self, bytes: usize) -> usize {
        let missing = bytes.saturating_sub(self.bytes - self.read);
        missing.div_ceil(self.longest.max(LEAST_RUN_BYTES))
    }

    /// Takes in what has come.
    pub(super) fn push(&mut self, run: Bytes) {
        self.bytes += run.len();
        self.longest = self.longest.max(run.len());
        self.runs.push_back(run);
        if self.runs.len() > MOST_RUNS {
            self.join();
        }
    }

    /// The header that has come.
    ///
    /// # Panics
    /// When it has not.
    pub(super) fn header(&mut self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        self.left = HEADER_BYTES;
        self.copy_to(&mut header);
        header
    }

    /// Begins to read a payload of `bytes` bytes.
    ///
    /// # Panics
    /// When it has not come.
    pub(super) fn begin(&mut self, bytes: usize) {
        assert!(self.has(bytes), "a payload is read once all of it is there");
        self.left = bytes;
    }

    /// Lets go of what was handed out.
    fn let_go(&mut self) {
        while let Some(first) = self.runs.front_mut() {
            let over = self.read.min(first.len());
            self.read -= over;
            self.bytes -= over;
            if over < first.len() {
                first.advance(over);
                break;
            }
            self.runs.pop_front();
        }
    }

    /// Puts all into one run: each of many short ones keeps alive what came together with it.
    fn join(&mut self) {
        self.let_go();
        let mut all = BytesMut::with_capacity(self.bytes);
        for run in self.runs.drain(..) {
            all.extend_from_slice(&run);
        }
        self.runs.push_back(all.freeze());
    }
}

impl Runs for Backlog {
    fn left(&self) -> usize {
        self.left
    }

    fn run(&mut self, most: usize, element: usize) -> &[u8] {
        assert!(most <= self.left, "{most} bytes of {} are left", self.left);
        self.let_go();
        let first = self.runs.front().map_or(0, Bytes::len).min(most);
        if first >= element {
            self.read = first - first % element;
            self.left -= self.read;
            return &self.runs[0][..self.read];
        }
        let bytes = self.runs.iter().flatten();
        self.element[..element]
            .iter_mut()
            .zip(bytes)
            .for_each(|(part, byte)| *part = *byte);
        self.read = element;
        self.left -= element;
        &self.element[..element]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sardana_protocol::state::{Dtype, TensorSpec};

    use super::*;
    use crate::compression::Half;
    use crate::layout::Layout;
    use crate::reduce;

    /// What a link does: takes runs in as it needs them, and reads frame after frame.
    struct Link<I> {
        coming: I,
        backlog: Backlog,
    }

    impl<I: Iterator<Item = Bytes>> Link<I> {
        fn until(&mut self, bytes: usize) {
            while !self.backlog.has(bytes) {
                self.backlog.push(self.coming.next().expect("more comes"));
            }
        }

        fn receive(&mut self, header: [u8; HEADER_BYTES], payload: usize) -> &mut Backlog {
            self.backlog.end_frame();
            self.until(HEADER_BYTES);
            assert_eq!(self.backlog.header(), header);
            self.until(payload);
            self.backlog.begin(payload);
            &mut self.backlog
        }
    }

    /// `bytes` in runs as long as `lengths` say, in turn.
    fn cut(bytes: Vec<u8>, lengths: &[usize]) -> impl Iterator<Item = Bytes> {
        let (mut rest, mut lengths) = (Bytes::from(bytes), lengths.iter().cycle());
        std::iter::from_fn(move || {
            let run = rest.len().min(*lengths.next()?);
            (run > 0).then(|| rest.split_to(run))
        })
    }

    /// One frame, all of which has come in such runs, and its header's bytes.
    fn come(payload: &[u8], lengths: &[usize]) -> Backlog {
        let header = [3; HEADER_BYTES];
        let stream = [&header[..], payload].concat();
        let (coming, backlog) = (cut(stream, lengths), Backlog::default());
        let mut link = Link { coming, backlog };
        link.receive(header, payload.len());
        link.backlog
    }

    fn lengths() -> impl Strategy<Value = Vec<usize>> {
        proptest::collection::vec(prop_oneof![1_usize..9, 1_usize..200, 1_000_usize..5_000], 1..8)
    }

    /// Any bytes: numbers of all magnitudes, infinities, NaNs.
    fn any_bytes(bytes: usize, seed: u64) -> Vec<u8> {
        let numbers = (0..bytes as u64).map(|at| (at + 1).wrapping_mul(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1));
        numbers.map(|number| (number >> 40) as u8).collect()
    }

    /// Tensors of both types, so that elements of 8 bytes follow such of 4.
    fn layout() -> Layout {
        let tensors = vec![
            TensorSpec::new("a", Dtype::F32, &[1_501]),
            TensorSpec::new("b", Dtype::F64, &[701]),
            TensorSpec::new("c", Dtype::F32, &[3]),
        ];
        Layout::new(tensors, 3).unwrap()
    }

    proptest! {
        #[test]
        fn frames_come_whole_however_they_are_cut(lengths in lengths(), read in 0_usize..400) {
            let payloads: Vec<Vec<u8>> = [300, 0, 5_000, 1, 17].map(|bytes| any_bytes(bytes, 1)).into();
            let header = |number: usize| [number as u8; HEADER_BYTES];
            let frames = payloads.iter().enumerate();
            let stream = frames.flat_map(|(number, payload)| [&header(number)[..], payload].concat()).collect();
            let mut link = Link { coming: cut(stream, &lengths), backlog: Backlog::default() };
            for (number, payload) in payloads.iter().enumerate() {
                let frame = link.receive(header(number), payload.len());
                // A reader may leave some of a frame.
                let mut first = vec![0; read.min(payload.len())];
                frame.copy_to(&mut first);
                prop_assert_eq!(&first[..], &payload[..first.len()]);
                prop_assert_eq!(frame.left(), payload.len() - first.len());
            }
            prop_assert!(link.coming.next().is_none());
        }

        #[test]
        fn a_run_has_whole_elements_and_their_order(lengths in lengths(), element in 1_usize..=8, most in 1_usize..40) {
            let payload = any_bytes(40 * element, 2);
            let mut frame = come(&payload, &lengths);
            let mut seen = Vec::new();
            while frame.left() > 0 {
                let most = frame.left().min(most * element);
                let run = frame.run(most, element);
                prop_assert!(!run.is_empty() && run.len() <= most && run.len() % element == 0);
                seen.extend_from_slice(run);
            }
            prop_assert_eq!(seen, payload);
        }

        /// Against the same additions of what lies in one piece.
        #[test]
        fn what_is_added_where_it_came_has_the_same_bits(one in lengths(), other in lengths(), own in any::<u64>()) {
            let layout = layout();
            let all = 0..layout.bytes();
            let terms = [7, 8, own].map(|seed| any_bytes(layout.bytes(), seed));
            let slices: Vec<&[u8]> = terms.iter().map(Vec::as_slice).collect();
            let (mut expected, mut found) = (vec![0x55; layout.bytes()], vec![0xaa; layout.bytes()]);
            // The first, the second and a later term come over links.
            for place in 0..3 {
                let mut in_order = slices.clone();
                in_order.rotate_left(place);
                reduce::sum_into(&layout, all.clone(), &mut expected, &mut in_order.clone());
                let mut come = [come(in_order[0], &one), come(in_order[1], &other), come(in_order[2], &one)];
                reduce::sum_into(&layout, all.clone(), &mut found, &mut come);
                prop_assert!(found == expected, "three terms from {place} on");
            }
            reduce::add(&layout, all.clone(), &mut expected, slices[1]);
            reduce::add(&layout, all, &mut found, come(slices[1], &other));
            prop_assert!(found == expected, "one more");
        }

        #[test]
        fn halves_are_widened_where_they_came(lengths in lengths()) {
            let (layout, half) = (layout(), Half::Bf16);
            let all = 0..layout.bytes();
            let (packed, own) = (any_bytes(half.packed_bytes(&layout, all.clone()), 3), any_bytes(layout.bytes(), 4));
            let (mut expected, mut found) = (vec![0x55; layout.bytes()], vec![0xaa; layout.bytes()]);
            half.sum_unpacked(&layout, all.clone(), &mut expected, &mut &packed[..], &[&own]);
            half.sum_unpacked(&layout, all, &mut found, &mut come(&packed, &lengths), &[&own]);
            prop_assert!(found == expected);
        }
    }

    #[test]
    fn what_comes_in_very_many_runs_is_joined() {
        let payload = any_bytes(10 * MOST_RUNS, 5);
        let mut frame = come(&payload, &[1]);
        assert!(frame.runs.len() <= MOST_RUNS);
        assert_eq!(frame.to_vec(), payload);
    }

    #[test]
    fn no_more_is_asked_for_than_is_missing() {
        let mut backlog = Backlog::default();
        assert_eq!(backlog.runs_until(1), 1);
        assert_eq!(backlog.runs_until(2 * LEAST_RUN_BYTES + 1), 3);
        backlog.push(Bytes::from(vec![0; 60_000]));
        assert_eq!(backlog.runs_until(60_000), 0);
        assert_eq!(backlog.runs_until(131_120), 2);
    }
}
