//! Memory that takes long to give back to the system: hundreds of milliseconds for a GiB. Its last owner may be a thread that
//! others' steps wait for, or hold a lock that such a thread wants.

use std::thread;

use bytes::Bytes;

/// What takes longer to give back than a thread takes to start.
const LARGE: usize = 4 << 20;

/// The same bytes; if they are many, another thread gives their memory back with its last owner.
pub(super) fn given_back_aside(bytes: Bytes) -> Bytes {
    if bytes.len() < LARGE {
        return bytes;
    }
    Bytes::from_owner(Held(bytes))
}

struct Held(Bytes);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.0);
        // Where no thread can be had, this thread does it: the closure is dropped with all it holds.
        let _ = thread::Builder::new().name("give back".to_owned()).spawn(move || drop(bytes));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::ThreadId;

    use super::*;

    /// Says where it is dropped.
    struct Told(Vec<u8>, mpsc::Sender<ThreadId>);

    impl AsRef<[u8]> for Told {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    impl Drop for Told {
        fn drop(&mut self) {
            self.1.send(thread::current().id()).expect("the test waits");
        }
    }

    #[test]
    fn many_bytes_are_given_back_by_another_thread_once_nobody_holds_them() {
        let (sender, dropped) = mpsc::channel();
        let given_back = |length: usize| {
            let bytes = given_back_aside(Bytes::from_owner(Told(vec![7; length], sender.clone())));
            let part = bytes.slice(1..3);
            drop(bytes);
            assert_eq!(*part, [7, 7]);
            assert!(dropped.try_recv().is_err(), "a part of them is held");
            drop(part);
            dropped.recv().expect("they are given back") == thread::current().id()
        };
        assert!(!given_back(LARGE), "not here");
        assert!(given_back(LARGE - 1), "a few are not worth a thread");
    }
}
