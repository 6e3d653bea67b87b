//! The text of kernels, and the C++ around it. Knows no compiler.

use std::fmt::Write as _;

/// A file of CUDA C, the files that it includes, and the names of its kernels.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    text: String,
    included: Vec<(String, String)>,
    kernels: Vec<String>,
}

impl Source {
    /// The file `name`, with its text and its kernels.
    #[must_use]
    pub fn new(name: &str, text: &str, kernels: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            text: text.to_owned(),
            included: Vec::new(),
            kernels: kernels.iter().map(|&kernel| kernel.to_owned()).collect(),
        }
    }

    /// With one more file, which it may include by this name.
    #[must_use]
    pub fn including(mut self, name: &str, text: &str) -> Self {
        self.included.push((name.to_owned(), text.to_owned()));
        self
    }

    /// With `to` in place of `from`.
    ///
    /// # Panics
    /// When `from` is not there exactly once: a fault that changes nothing, or more than it says, plants nothing.
    #[must_use]
    pub fn replaced(mut self, from: &str, to: &str) -> Self {
        let found = self.text.matches(from).count();
        assert_eq!(found, 1, "expected `{from}` once in {}, found it {found} times", self.name);
        self.text = self.text.replace(from, to);
        self
    }

    /// The files as they are compiled, by name.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        let included = self.included.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        included.chain([(self.name.as_str(), self.text.as_str())])
    }

    /// The unit that is compiled: the kernels, and the table in which they are found.
    pub(crate) fn unit(&self) -> String {
        let mut unit = format!(
            "#include \"device.h\"\n#include \"{}\"\nextern const TwinKernel twin_kernels[] = {{\n",
            self.name
        );
        for kernel in &self.kernels {
            writeln!(unit, "    TWIN_KERNEL({kernel})").expect("text takes text");
        }
        unit + "    {0, 0, 0, 0}};\n"
    }
}
