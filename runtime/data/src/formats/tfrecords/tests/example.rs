//! `tf.train.Example`, by bytes that are put together as the encoding of protocol buffers is described.

use super::super::example::{Example, Feature};
use super::has;

/// A field of which the length is stated: its number, type 2, the length, the bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

/// An entry of the map: the name, and a feature with this list.
fn entry(name: &str, kind: u8, list: &[u8]) -> Vec<u8> {
    let feature = field(kind, list);
    field(1, &[field(1, name.as_bytes()), field(2, &feature)].concat())
}

fn example(entries: &[Vec<u8>]) -> Vec<u8> {
    field(1, &entries.concat())
}

fn floats() -> Vec<u8> {
    [1.5_f32, -0.25].iter().flat_map(|float| float.to_le_bytes()).collect()
}

#[test]
fn an_example_is_read_from_its_bytes() {
    let bytes = entry("image", 1, &field(1, b"\xff\x00png"));
    let packed = entry("x", 2, &field(1, &floats()));
    // 300 takes two bytes, and -1 ten.
    let ints = [&[0xac, 0x02][..], &[0xff; 9], &[0x01]].concat();
    let ints = entry("label", 3, &field(1, &ints));
    let example = Example::decode(&example(&[packed, ints, bytes])).unwrap();
    assert_eq!(example.bytes("image").unwrap(), b"\xff\x00png");
    assert_eq!(example.floats("x").unwrap(), [1.5, -0.25]);
    assert_eq!(example.ints("label").unwrap(), [300, -1]);
    let names: Vec<_> = example.features().map(|(name, _)| name).collect();
    assert_eq!(names, ["image", "label", "x"], "by name, whatever the order in the record");
}

#[test]
fn numbers_are_read_packed_and_not_packed() {
    // Each float by itself: field 1, of type 5, four bytes; each integer: field 1, of type 0.
    let apart: Vec<u8> = floats().chunks(4).flat_map(|float| [&[1 << 3 | 5], float].concat()).collect();
    let one = Example::decode(&example(&[entry("x", 2, &apart), entry("y", 3, &[8, 5, 8, 6])])).unwrap();
    let other = Example::decode(&example(&[
        entry("x", 2, &field(1, &floats())),
        entry("y", 3, &field(1, &[5, 6])),
    ]))
    .unwrap();
    assert_eq!(one, other);
    assert_eq!(one.floats("x").unwrap(), [1.5, -0.25]);
    assert_eq!(one.ints("y").unwrap(), [5, 6]);
}

#[test]
fn what_is_encoded_has_these_bytes_and_is_read() {
    let one = Example::new()
        .with("x", Feature::Floats(vec![1.5, -0.25]))
        .with("image", Feature::Bytes(vec![b"png".to_vec()]))
        .with("label", Feature::Ints(vec![7]));
    let expected = [
        entry("image", 1, &field(1, b"png")),
        entry("label", 3, &field(1, &[7])),
        entry("x", 2, &field(1, &floats())),
    ];
    assert_eq!(one.encode(), example(&expected));
    let lists = one
        .with("none", Feature::Nothing)
        .with("empty", Feature::Floats(vec![]))
        .with("texts", Feature::Bytes(vec![vec![], b"b".to_vec()]));
    assert_eq!(Example::decode(&lists.encode()).unwrap(), lists);
    assert_eq!(Example::decode(b"").unwrap(), Example::new());
}

#[test]
fn what_is_not_there_is_told_with_what_is() {
    let example = Example::new()
        .with("label", Feature::Ints(vec![1, 2]))
        .with("image", Feature::Bytes(vec![b"a".to_vec()]))
        .with("lost", Feature::Nothing);
    let error = example.bytes("imgae").unwrap_err();
    let there = "found the features `image` of 1 byte string, `label` of 2 integers, `lost` of nothing";
    has(&error, &["expected a feature `imgae` of 1 byte string", there]);
    has(
        &example.floats("label").unwrap_err(),
        &["expected a feature `label` of floats, found 2 integers in it"],
    );
    has(
        &example.int("label").unwrap_err(),
        &["`label` of 1 integer, found 2 integers"],
    );
    has(
        &example.ints("lost").unwrap_err(),
        &["`lost` of integers, found nothing in it"],
    );
    has(
        &example.byte_strings("label").unwrap_err(),
        &["`label` of byte strings, found 2 integers"],
    );
    has(&Example::new().ints("a").unwrap_err(), &["an example that has none"]);
    assert_eq!(example.byte_strings("image").unwrap(), [b"a"]);
    let two = example.with("image", Feature::Bytes(vec![vec![], vec![]]));
    has(&two.bytes("image").unwrap_err(), &["1 byte string, found 2 byte strings"]);
}

#[test]
fn a_message_is_short_however_many_and_long_the_names_are() {
    let name = |number: u32| format!("{number:04}\n\u{1b}{}", "é".repeat(10_000));
    let example = (0..5_000).fold(Example::new(), |example, number| example.with(name(number), Feature::Nothing));
    let error = example.ints(&name(9_999)).unwrap_err().to_string();
    has(&error, &["`0000\\n\\u{1b}ééé", "…` of nothing", "and 4988 more"]);
    assert!(error.len() < 2_000 && !error.contains('\n'), "{} bytes: {error}", error.len());
}

#[test]
fn what_is_no_example_is_refused_and_nothing_panics() {
    let whole = example(&[entry("x", 2, &field(1, &floats())), entry("image", 1, &field(1, b"png"))]);
    for cut in 1..whole.len() {
        // A list, and a message of it, may end where the bytes do; an example has its length stated.
        has(
            &Example::decode(&whole[..cut]).unwrap_err(),
            &["expected a record that is a tf.train.Example, found"],
        );
    }
    for bit in 0..8 * whole.len() {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        if let Err(error) = Example::decode(&damaged) {
            has(&error, &["expected a record that is a tf.train.Example"]);
        }
    }
    let huge = [&[1 << 3 | 2][..], &[0xff; 9], &[0x01], b"abc"].concat();
    has(&Example::decode(&huge).unwrap_err(), &["tf.train.Example"]);
    let sequence = [example(&[]), field(2, &[])].concat();
    has(
        &Example::decode(&sequence).unwrap_err(),
        &["found a tf.train.SequenceExample"],
    );
}
