//! `tf.train.Example`, which most TFRecords hold: features by name, each a list of byte strings, of floats or of integers. Where a
//! record was kept is not known here.

use std::collections::BTreeMap;
use std::fmt;

use prost::Message;

use crate::DataError;

/// What a record must be.
pub(super) const EXPECTED: &str = "a record that is a tf.train.Example";

/// As many features are named in an error; the rest is counted.
const NAMES_TOLD: usize = 12;

/// As many characters of a feature's name are told.
const NAME_CHARS: usize = 40;

/// One example: features by name, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Example {
    features: BTreeMap<String, Feature>,
}

/// A feature's values.
#[derive(Clone, Debug, PartialEq)]
pub enum Feature {
    /// Byte strings: texts, packed images, arrays of bytes. Mostly one.
    Bytes(Vec<Vec<u8>>),
    /// Numbers.
    Floats(Vec<f32>),
    /// Integers: labels, tokens.
    Ints(Vec<i64>),
    /// No list of any kind: how TensorFlow writes a feature that an example lacks.
    Nothing,
}

impl Example {
    /// One without features.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With the feature `name`, instead of one of that name.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, feature: Feature) -> Self {
        self.features.insert(name.into(), feature);
        self
    }

    /// Reads the wire format of protocol buffers.
    ///
    /// # Errors
    /// When `record` is not a `tf.train.Example`.
    pub fn decode(record: &[u8]) -> Result<Self, DataError> {
        Self::parse(record).map_err(|found| DataError::unfit(EXPECTED, found))
    }

    /// Reads the wire format, or says what is there instead of what is [`EXPECTED`].
    pub(super) fn parse(record: &[u8]) -> Result<Self, String> {
        let example = wire::Example::decode(record).map_err(|error| error.to_string())?;
        // Its first field is like an example's: it would be read as one, and what matters of it lost.
        if example.feature_lists.is_some() {
            return Err("a tf.train.SequenceExample".to_owned());
        }
        let features = example.features.unwrap_or_default().feature;
        let features = features.into_iter().map(|(name, feature)| (name, feature.into()));
        Ok(Self {
            features: features.collect(),
        })
    }

    /// In the wire format of protocol buffers: always the same bytes for the same features.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let feature = self.features.iter();
        let feature = feature
            .map(|(name, feature)| (name.clone(), feature.clone().into()))
            .collect();
        let example = wire::Example {
            features: Some(wire::Features { feature }),
            feature_lists: None,
        };
        example.encode_to_vec()
    }

    /// The features, in the order of their names.
    pub fn features(&self) -> impl Iterator<Item = (&str, &Feature)> {
        self.features.iter().map(|(name, feature)| (name.as_str(), feature))
    }

    /// The one byte string of the feature `name`.
    ///
    /// # Errors
    /// When there is no such feature, it is of another kind, or has not one byte string.
    pub fn bytes(&self, name: &str) -> Result<&[u8], DataError> {
        match self.features.get(name) {
            Some(Feature::Bytes(strings)) if strings.len() == 1 => Ok(&strings[0]),
            other => Err(self.unfit(name, "1 byte string", other)),
        }
    }

    /// All byte strings of the feature `name`.
    ///
    /// # Errors
    /// When there is no such feature, or it is of another kind.
    pub fn byte_strings(&self, name: &str) -> Result<&[Vec<u8>], DataError> {
        match self.features.get(name) {
            Some(Feature::Bytes(strings)) => Ok(strings),
            other => Err(self.unfit(name, "byte strings", other)),
        }
    }

    /// The floats of the feature `name`.
    ///
    /// # Errors
    /// When there is no such feature, or it is of another kind.
    pub fn floats(&self, name: &str) -> Result<&[f32], DataError> {
        match self.features.get(name) {
            Some(Feature::Floats(floats)) => Ok(floats),
            other => Err(self.unfit(name, "floats", other)),
        }
    }

    /// The integers of the feature `name`.
    ///
    /// # Errors
    /// When there is no such feature, or it is of another kind.
    pub fn ints(&self, name: &str) -> Result<&[i64], DataError> {
        match self.features.get(name) {
            Some(Feature::Ints(ints)) => Ok(ints),
            other => Err(self.unfit(name, "integers", other)),
        }
    }

    /// The one integer of the feature `name`: a label.
    ///
    /// # Errors
    /// When there is no such feature, it is of another kind, or has not one integer.
    pub fn int(&self, name: &str) -> Result<i64, DataError> {
        match self.features.get(name) {
            Some(Feature::Ints(ints)) if ints.len() == 1 => Ok(ints[0]),
            other => Err(self.unfit(name, "1 integer", other)),
        }
    }

    /// What is said when the feature `name` is not what was asked for.
    fn unfit(&self, name: &str, expected: &str, found: Option<&Feature>) -> DataError {
        let expected = format!("a feature {} of {expected}", shown(name));
        let found = match found {
            Some(feature) => format!("{feature} in it"),
            None => format!("the features {}", self.names()),
        };
        DataError::unfit(expected, found)
    }

    /// The features there are, by name and kind: as many as fit a message.
    fn names(&self) -> String {
        let told = self.features.iter().take(NAMES_TOLD);
        let mut told: Vec<_> = told.map(|(name, feature)| format!("{} of {feature}", shown(name))).collect();
        match self.features.len() {
            0 => return "of an example that has none".to_owned(),
            all if all > NAMES_TOLD => told.push(format!("and {} more", all - NAMES_TOLD)),
            _ => {}
        }
        told.join(", ")
    }
}

/// How many values of which kind.
impl fmt::Display for Feature {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, kind) = match self {
            Self::Bytes(strings) => (strings.len(), "byte string"),
            Self::Floats(floats) => (floats.len(), "float"),
            Self::Ints(ints) => (ints.len(), "integer"),
            Self::Nothing => return formatter.write_str("nothing"),
        };
        let plural = if count == 1 { "" } else { "s" };
        write!(formatter, "{count} {kind}{plural}")
    }
}

/// A name that comes from a file, as it may stand in a message.
fn shown(name: &str) -> String {
    let cut = if name.chars().nth(NAME_CHARS).is_some() { "…" } else { "" };
    let name: String = name.chars().take(NAME_CHARS).collect();
    format!("`{}{cut}`", name.escape_debug())
}

/// The messages as TensorFlow's `example.proto` and `feature.proto` have them.
mod wire {
    use std::collections::BTreeMap;

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Example {
        #[prost(message, optional, tag = "1")]
        pub(super) features: Option<Features>,
        /// Only a `SequenceExample` has them.
        #[prost(bytes = "vec", optional, tag = "2")]
        pub(super) feature_lists: Option<Vec<u8>>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Features {
        #[prost(btree_map = "string, message", tag = "1")]
        pub(super) feature: BTreeMap<String, Feature>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Feature {
        #[prost(oneof = "Kind", tags = "1, 2, 3")]
        pub(super) kind: Option<Kind>,
    }

    #[derive(Clone, PartialEq, prost::Oneof)]
    pub(super) enum Kind {
        #[prost(message, tag = "1")]
        Bytes(BytesList),
        #[prost(message, tag = "2")]
        Floats(FloatList),
        #[prost(message, tag = "3")]
        Ints(Int64List),
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct BytesList {
        #[prost(bytes = "vec", repeated, tag = "1")]
        pub(super) value: Vec<Vec<u8>>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct FloatList {
        #[prost(float, repeated, packed = "true", tag = "1")]
        pub(super) value: Vec<f32>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Int64List {
        #[prost(int64, repeated, packed = "true", tag = "1")]
        pub(super) value: Vec<i64>,
    }

    impl From<Feature> for super::Feature {
        fn from(feature: Feature) -> Self {
            match feature.kind {
                Some(Kind::Bytes(list)) => Self::Bytes(list.value),
                Some(Kind::Floats(list)) => Self::Floats(list.value),
                Some(Kind::Ints(list)) => Self::Ints(list.value),
                None => Self::Nothing,
            }
        }
    }

    impl From<super::Feature> for Feature {
        fn from(feature: super::Feature) -> Self {
            let kind = match feature {
                super::Feature::Bytes(value) => Some(Kind::Bytes(BytesList { value })),
                super::Feature::Floats(value) => Some(Kind::Floats(FloatList { value })),
                super::Feature::Ints(value) => Some(Kind::Ints(Int64List { value })),
                super::Feature::Nothing => None,
            };
            Self { kind }
        }
    }
}
