//! Every kernel: its name, the module that it is in, and what it takes. Knows nothing of what it computes; that is [`mod@crate::reference`].

use crate::parameters::{Descent, Moments, Shards};

/// A file of kernels, as a device loads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Module {
    /// Shards added to running sums.
    Sums,
    /// f32 as halves, and back.
    Halves,
    /// Many tensors into a gradient's bytes, or out of them.
    Tensors,
    /// Means, and updates of parameters.
    Updates,
    /// Sums of squares.
    Norms,
    /// BLAKE3.
    Hashes,
    /// Dense layers.
    Dense,
    /// What lies between layers and behind them.
    Pointwise,
}

impl Module {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Sums,
        Self::Halves,
        Self::Tensors,
        Self::Updates,
        Self::Norms,
        Self::Hashes,
        Self::Dense,
        Self::Pointwise,
    ];

    /// The name of its file, in `kernels/` with the extension `cu` and in `ptx/` with `ptx`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sums => "sums",
            Self::Halves => "halves",
            Self::Tensors => "tensors",
            Self::Updates => "updates",
            Self::Norms => "norms",
            Self::Hashes => "hashes",
            Self::Dense => "dense",
            Self::Pointwise => "pointwise",
        }
    }

    /// The text that a driver makes its code of, on any device of compute capability 8.0 or later.
    #[must_use]
    pub const fn ptx(self) -> &'static str {
        match self {
            Self::Sums => include_str!("../ptx/sums.ptx"),
            Self::Halves => include_str!("../ptx/halves.ptx"),
            Self::Tensors => include_str!("../ptx/tensors.ptx"),
            Self::Updates => include_str!("../ptx/updates.ptx"),
            Self::Norms => include_str!("../ptx/norms.ptx"),
            Self::Hashes => include_str!("../ptx/hashes.ptx"),
            Self::Dense => include_str!("../ptx/dense.ptx"),
            Self::Pointwise => include_str!("../ptx/pointwise.ptx"),
        }
    }

    /// Its kernels.
    pub fn kernels(self) -> impl Iterator<Item = &'static Kernel> {
        ALL.iter().filter(move |kernel| kernel.module == self)
    }
}

/// The BLAKE3 hash of all that devices load.
#[must_use]
pub fn digest() -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("sardana kernels v1");
    for module in Module::ALL {
        hasher.update(blake3::hash(module.ptx().as_bytes()).as_bytes());
    }
    hasher.finalize().into()
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// An address in the device's memory.
    Address,
    /// A `u32`.
    U32,
    /// A `u64`.
    U64,
    /// An `f32`.
    F32,
    /// An `f64`.
    F64,
    /// [`Shards`].
    Shards,
    /// [`Descent`].
    Descent,
    /// [`Moments`].
    Moments,
}

impl Parameter {
    /// Its bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Address => size_of::<u64>(),
            Self::U32 => size_of::<u32>(),
            Self::U64 => size_of::<u64>(),
            Self::F32 => size_of::<f32>(),
            Self::F64 => size_of::<f64>(),
            Self::Shards => size_of::<Shards>(),
            Self::Descent => size_of::<Descent>(),
            Self::Moments => size_of::<Moments>(),
        }
    }
}

/// A kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// What it is called in its module.
    pub name: &'static str,
    /// The module.
    pub module: Module,
    /// What it takes, in order: what each is called in the source, and its type.
    pub parameters: &'static [(&'static str, Parameter)],
}

macro_rules! kernels {
    ($($(#[$doc:meta])* $constant:ident = $module:ident $name:ident($($parameter:ident: $type:ident),*);)*) => {
        $(
            $(#[$doc])*
            pub const $constant: Kernel = Kernel {
                name: stringify!($name),
                module: Module::$module,
                parameters: &[$((stringify!($parameter), Parameter::$type)),*],
            };
        )*

        /// All kernels.
        pub const ALL: &[Kernel] = &[$($constant),*];
    };
}

kernels! {
    /// [`sums::sum_f32`](crate::reference::sums::sum_f32). `out` may be `running`; of the shards `count` are there.
    SUM_F32 = Sums sum_f32(out: Address, running: Address, shards: Shards, count: U32, length: U64);
    /// The same bits as [`SUM_F32`], faster. All addresses are multiples of 16.
    SUM_F32X4 = Sums sum_f32x4(out: Address, running: Address, shards: Shards, count: U32, length: U64);
    /// [`sums::sum_f64`](crate::reference::sums::sum_f64).
    SUM_F64 = Sums sum_f64(out: Address, running: Address, shards: Shards, count: U32, length: U64);
    /// [`sums::sum_bf16`](crate::reference::sums::sum_bf16). `out` and `running` are f32.
    SUM_BF16 = Sums sum_bf16(out: Address, running: Address, shards: Shards, count: U32, length: U64);
    /// [`sums::sum_f16`](crate::reference::sums::sum_f16). `out` and `running` are f32.
    SUM_F16 = Sums sum_f16(out: Address, running: Address, shards: Shards, count: U32, length: U64);
    /// [`halves::narrow_bf16`](crate::reference::halves::narrow_bf16).
    NARROW_BF16 = Halves narrow_bf16(out: Address, values: Address, length: U64);
    /// [`halves::narrow_f16`](crate::reference::halves::narrow_f16).
    NARROW_F16 = Halves narrow_f16(out: Address, values: Address, length: U64);
    /// [`halves::widen_bf16`](crate::reference::halves::widen_bf16).
    WIDEN_BF16 = Halves widen_bf16(out: Address, halves: Address, length: U64);
    /// [`halves::widen_f16`](crate::reference::halves::widen_f16).
    WIDEN_F16 = Halves widen_f16(out: Address, halves: Address, length: U64);
    /// [`tensors::pack`](crate::reference::tensors::pack) of f32. `tensors` is a table of `count` rows with `tiles` tiles; `add` is 0 or 1.
    PACK_F32 = Tensors pack_f32(gradient: Address, tensors: Address, count: U32, tiles: U64, add: U32);
    /// [`tensors::pack`](crate::reference::tensors::pack) of f64.
    PACK_F64 = Tensors pack_f64(gradient: Address, tensors: Address, count: U32, tiles: U64, add: U32);
    /// [`tensors::unpack`](crate::reference::tensors::unpack) of f32.
    UNPACK_F32 = Tensors unpack_f32(gradient: Address, tensors: Address, count: U32, tiles: U64, add: U32);
    /// [`tensors::unpack`](crate::reference::tensors::unpack) of f64.
    UNPACK_F64 = Tensors unpack_f64(gradient: Address, tensors: Address, count: U32, tiles: U64, add: U32);
    /// [`updates::mean_f32`](crate::reference::updates::mean_f32). `out` may be `sum`.
    MEAN_F32 = Updates mean_f32(out: Address, sum: Address, divisor: F32, length: U64);
    /// [`updates::mean_f64`](crate::reference::updates::mean_f64). `out` may be `sum`.
    MEAN_F64 = Updates mean_f64(out: Address, sum: Address, divisor: F64, length: U64);
    /// [`updates::sgd`](crate::reference::updates::sgd).
    SGD = Updates sgd(values: Address, sum: Address, by: Descent, length: U64);
    /// [`updates::momentum`](crate::reference::updates::momentum).
    MOMENTUM = Updates momentum(values: Address, velocities: Address, sum: Address, by: Descent, length: U64);
    /// [`updates::nesterov`](crate::reference::updates::nesterov).
    NESTEROV = Updates nesterov(values: Address, velocities: Address, sum: Address, by: Descent, length: U64);
    /// [`updates::adam`](crate::reference::updates::adam): Adam and `AdamW`.
    ADAM = Updates adam(values: Address, means: Address, squares: Address, sum: Address, by: Moments, length: U64);
    /// [`norms::squares`](crate::reference::norms::squares) of each tile of the `count` rows of a table. `out` has an f64 for each.
    SQUARES = Norms squares(out: Address, tensors: Address, count: U32, divisor: F32);
    /// [`norms::tree_sum`](crate::reference::norms::tree_sum) of each row of a table, which are changed. `out` has an f64 for each.
    TREE_SUMS = Norms tree_sums(out: Address, rows: Address);
    /// [`hashes::hash`](crate::reference::hashes::hash) of each row of a table. `out` has 32 bytes for each, and is a multiple of 4.
    HASH_PIECES = Hashes hash_pieces(out: Address, pieces: Address);
    /// [`dense::forward`](crate::reference::dense::forward).
    DENSE_FORWARD = Dense dense_forward(y: Address, x: Address, w: Address, b: Address, batch: U32, outputs: U32, inputs: U32);
    /// [`dense::backward_inputs`](crate::reference::dense::backward_inputs).
    DENSE_BACKWARD_INPUTS = Dense dense_backward_inputs(dx: Address, dy: Address, w: Address, batch: U32, outputs: U32, inputs: U32);
    /// [`dense::backward_weights`](crate::reference::dense::backward_weights).
    DENSE_BACKWARD_WEIGHTS = Dense dense_backward_weights(dw: Address, dy: Address, x: Address, batch: U32, outputs: U32, inputs: U32);
    /// [`dense::backward_biases`](crate::reference::dense::backward_biases).
    DENSE_BACKWARD_BIASES = Dense dense_backward_biases(db: Address, dy: Address, batch: U32, outputs: U32);
    /// [`pointwise::rectify`](crate::reference::pointwise::rectify). `out` may be `values`.
    RECTIFY = Pointwise rectify(out: Address, values: Address, length: U64);
    /// [`pointwise::rectify_backward`](crate::reference::pointwise::rectify_backward). `out` may be `gradients`.
    RECTIFY_BACKWARD = Pointwise rectify_backward(out: Address, gradients: Address, rectified: Address, length: U64);
    /// [`pointwise::distances`](crate::reference::pointwise::distances). `out` may be `scores`; labels are u32.
    DISTANCES = Pointwise distances(out: Address, scores: Address, labels: Address, rows: U32, classes: U32);
    /// [`pointwise::hits`](crate::reference::pointwise::hits). `out` and labels are u32; there is at least one class.
    HITS = Pointwise hits(out: Address, scores: Address, labels: Address, rows: U32, classes: U32);
}
