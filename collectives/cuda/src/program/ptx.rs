//! The kernels of PTX and the parameters of each, read from its text. Pure: must not know who made the text. Any text is read or refused.

use std::fmt;

/// What a parameter of a kernel is, as far as PTX says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// An address.
    Address,
    /// An integer of so many bytes, signed or not; of 8 bytes it may be an address.
    Integer(usize),
    /// A floating-point number of so many bytes.
    Float(usize),
    /// So many bytes, of any type.
    Bits(usize),
    /// A structure of so many bytes.
    Structure(usize),
}

impl Takes {
    /// Its bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Address => size_of::<u64>(),
            Self::Integer(bytes) | Self::Float(bytes) | Self::Bits(bytes) | Self::Structure(bytes) => bytes,
        }
    }
}

impl fmt::Display for Takes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => formatter.write_str("address"),
            Self::Integer(8) => formatter.write_str("address or integer of 8 bytes"),
            Self::Integer(bytes) => write!(formatter, "integer of {bytes} bytes"),
            Self::Float(bytes) => write!(formatter, "float of {bytes} bytes"),
            Self::Bits(bytes) => write!(formatter, "{bytes} bytes"),
            Self::Structure(bytes) => write!(formatter, "structure of {bytes} bytes"),
        }
    }
}

/// A kernel: its name, and what it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) parameters: Vec<Takes>,
}

/// Most parameters of a kernel: as many as fit the space that drivers have for them, one byte each.
const MOST_PARAMETERS: usize = 32_764;

/// The kernels of PTX. The error says what cannot be read.
pub(crate) fn entries(ptx: &str) -> Result<Vec<Entry>, String> {
    let text = bare(ptx);
    let mut found = Vec::new();
    for (at, word) in text.match_indices(".entry") {
        let rest = &text[at + word.len()..];
        if rest.starts_with(char::is_whitespace) {
            found.push(entry(rest.trim_start())?);
        }
    }
    Ok(found)
}

/// The text without comments and without what is quoted.
fn bare(ptx: &str) -> String {
    let mut text = String::with_capacity(ptx.len());
    let mut rest = ptx;
    while let Some(at) = rest.find(['/', '"']) {
        let (before, from) = rest.split_at(at);
        text.push_str(before);
        let (end, opening) = match from.as_bytes() {
            [b'/', b'/', ..] => ("\n", 2),
            [b'/', b'*', ..] => ("*/", 2),
            [b'"', ..] => ("\"", 1),
            _ => {
                text.push('/');
                rest = &from[1..];
                continue;
            }
        };
        text.push(' ');
        let inside = &from[opening..];
        rest = inside.find(end).map_or("", |at| &inside[at + end.len()..]);
    }
    text + rest
}

/// What stands behind `.entry`.
fn entry(text: &str) -> Result<Entry, String> {
    let end = text.find(|letter: char| letter.is_whitespace() || matches!(letter, '(' | '{' | ';' | '.'));
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    if name.is_empty() {
        return Err("a kernel without a name".to_owned());
    }
    let name = name.to_owned();
    let Some(list) = rest.trim_start().strip_prefix('(') else {
        let parameters = Vec::new();
        return Ok(Entry { name, parameters });
    };
    let (list, _) = list
        .split_once(')')
        .ok_or_else(|| format!("parameters of {name} without an end"))?;
    let mut parameters = Vec::new();
    if !list.trim().is_empty() {
        for text in list.split(',') {
            let one = parameter(text).ok_or_else(|| format!("a parameter of {name} that is not known: `{}`", cut(text)))?;
            parameters.push(one);
            if parameters.len() > MOST_PARAMETERS {
                return Err(format!("more than {MOST_PARAMETERS} parameters of {name}"));
            }
        }
    }
    Ok(Entry { name, parameters })
}

/// One parameter, as in `.param .u64 name`, `.param .u64 .ptr .global .align 4 name` or `.param .align 8 .b8 name[256]`.
fn parameter(text: &str) -> Option<Takes> {
    let (words, length) = match text.split_once('[') {
        None => (text, None),
        Some((words, rest)) => (words, Some(rest.split_once(']')?.0.trim().parse::<usize>().ok()?)),
    };
    let mut words = words.split_whitespace();
    if words.next() != Some(".param") {
        return None;
    }
    let mut kind = None;
    let mut is_address = false;
    while let Some(word) = words.next() {
        match word.strip_prefix('.') {
            // Its name.
            None => break,
            Some("align") => {
                words.next()?.parse::<u32>().ok()?;
            }
            Some("ptr") => is_address = true,
            Some("global" | "const" | "shared" | "local") if is_address => {}
            Some(word) if kind.is_none() => kind = Some(scalar(word)?),
            Some(_) => return None,
        }
    }
    match (kind?, length) {
        (Takes::Bits(1), Some(bytes)) => Some(Takes::Structure(bytes)),
        (_, Some(_)) => None,
        (Takes::Integer(8) | Takes::Bits(8), None) if is_address => Some(Takes::Address),
        (kind, None) if !is_address => Some(kind),
        (_, None) => None,
    }
}

/// The type `u32`, `s64`, `f32`, `b8` and so on.
fn scalar(word: &str) -> Option<Takes> {
    let (kind, bits) = word.split_at_checked(1)?;
    let bytes = match bits {
        "8" => 1,
        "16" => 2,
        "32" => 4,
        "64" => 8,
        _ => return None,
    };
    match kind {
        "u" | "s" => Some(Takes::Integer(bytes)),
        "f" if bytes > 1 => Some(Takes::Float(bytes)),
        "b" => Some(Takes::Bits(bytes)),
        _ => None,
    }
}

/// Not more of a text than a person reads.
fn cut(text: &str) -> String {
    text.trim().chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{Module, Parameter};

    #[test]
    fn what_it_reads_of_the_kernels_is_their_table() {
        for module in Module::ALL {
            let mut found: Vec<(String, Vec<usize>)> = entries(module.ptx())
                .unwrap()
                .into_iter()
                .map(|entry| (entry.name, entry.parameters.iter().map(|takes| takes.bytes()).collect()))
                .collect();
            let sizes = |parameters: &[(&str, Parameter)]| parameters.iter().map(|(_, one)| one.bytes()).collect();
            let mut expected: Vec<(String, Vec<usize>)> = module
                .kernels()
                .map(|kernel| (kernel.name.to_owned(), sizes(kernel.parameters)))
                .collect();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "{module:?}");
        }
    }

    #[test]
    fn all_that_a_parameter_can_be_is_read() {
        let text = ".visible .entry one(\n\t.param .u64 .ptr .global .align 4 a,\n\t.param .u64 b,\n\t.param .s32 c,\n\
                    .param .f32 d, .param .f64 e, .param .b32 f, .param .align 8 .b8 g[24], .param .u64 .ptr .align 1 h)\n\
                    .maxntid 256, 1, 1\n{ ret; }\n.weak .entry _Z3twov() { }\n.entry three\n{ }";
        let found = entries(text).unwrap();
        let expected = [
            Takes::Address,
            Takes::Integer(8),
            Takes::Integer(4),
            Takes::Float(4),
            Takes::Float(8),
            Takes::Bits(4),
            Takes::Structure(24),
            Takes::Address,
        ];
        assert_eq!(found[0].parameters, expected);
        assert_eq!(
            found.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(),
            ["one", "_Z3twov", "three"]
        );
        assert!(found[1].parameters.is_empty() && found[2].parameters.is_empty());
    }

    #[test]
    fn comments_and_what_is_quoted_are_no_kernels() {
        let text = "// .entry a()\n/* .entry b() */ .file 1 \".entry c()\"\n.entry /* d */ e(.param .u32 x // ) , \n)\n.entryway f 1 / 2";
        let found = entries(text).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].name.as_str(), found[0].parameters.as_slice()),
            ("e", [Takes::Integer(4)].as_slice())
        );
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for (text, told) in [
            (".entry a(.param .u32 x", "without an end"),
            (".entry (.param .u32 x)", "without a name"),
            (".entry a(.param .texref x)", "`.param .texref x`"),
            (".entry a(.param .u32 x,)", "a parameter of a"),
            (".entry a(.param .u32 x[3])", "a parameter of a"),
            (".entry a(.param .b8 x[99999999999999999999])", "a parameter of a"),
            (".entry a(.param .f8 x)", "a parameter of a"),
            (".entry a(.param .u64 .u64 x)", "a parameter of a"),
            (".entry a(.param .u32 .ptr x)", "a parameter of a"),
            (".entry a(.param x)", "a parameter of a"),
            (".entry a(.reg .u32 x)", "a parameter of a"),
            (".entry a(.param .ü x)", "a parameter of a"),
        ] {
            let error = entries(text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }

    #[test]
    fn any_beginning_of_a_text_is_read_or_refused() {
        let ptx = Module::Norms.ptx();
        for end in (0..ptx.len()).step_by(7) {
            let _ = entries(&ptx[..end]);
        }
        assert_eq!(entries(&ptx[..10]), Ok(vec![]));
    }
}
