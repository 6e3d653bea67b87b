//! Kernels that take many tensors at once, by a table in the device's memory, which is freed behind them.

use super::{Argument, Enqueue, Float, require};
use crate::device::{DeviceError, DeviceTensor, View, ViewMut};
use crate::geometry;
use crate::kernels::{self, Kernel};
use crate::parameters::{MAX_PIECE_BYTES, Piece, Tensor, Terms, Values};

/// Bytes of a hash.
const HASH_BYTES: u64 = 32;

/// Most rows of one table: far more than a gradient has tensors, and fewer than a launch has blocks.
const MOST_ROWS: usize = 1 << 24;

impl Enqueue<'_> {
    /// Stores each tensor in the bytes of `gradient` from the byte on that it comes with, or adds it to what is there. No two overlap there.
    ///
    /// # Errors
    /// When a tensor has no place in the gradient, or two have one; or the device has failed.
    pub fn pack<T: Float>(
        &self,
        gradient: &mut ViewMut<'_, u8>,
        tensors: &[(u64, View<'_, T>)],
        add: bool,
    ) -> Result<(), DeviceError> {
        self.moved::<T>(&T::PACK, gradient.read(), tensors, add)
    }

    /// Whether [`Self::pack`] could read this tensor.
    ///
    /// # Errors
    /// When it lies on another device.
    pub(crate) fn can_pack<T: Float>(&self, tensor: &View<'_, T>) -> Result<(), DeviceError> {
        self.read(&T::PACK, tensor, tensor.len() as u64).map(drop)
    }

    /// Stores the bytes of `gradient` from the byte on that each tensor comes with in the tensors, or adds them to what is there.
    ///
    /// # Errors
    /// As [`Self::pack`].
    pub fn unpack<T: Float>(
        &self,
        gradient: &View<'_, u8>,
        tensors: &mut [(u64, ViewMut<'_, T>)],
        add: bool,
    ) -> Result<(), DeviceError> {
        let tensors: Vec<_> = tensors.iter().map(|(offset, tensor)| (*offset, *tensor.read())).collect();
        self.moved::<T>(&T::UNPACK, gradient, &tensors, add)
    }

    fn moved<T: Float>(
        &self,
        kernel: &Kernel,
        gradient: &View<'_, u8>,
        tensors: &[(u64, View<'_, T>)],
        add: bool,
    ) -> Result<(), DeviceError> {
        let to = self.read(kernel, gradient, gradient.len() as u64)?;
        for (_, tensor) in tensors {
            self.read(kernel, tensor, tensor.len() as u64)?;
        }
        let element = size_of::<T>() as u64;
        let rows: Vec<_> = tensors
            .iter()
            .map(|(offset, tensor)| (tensor.address(), *offset, tensor.len() as u64))
            .collect();
        let places = rows.iter().map(|&(_, offset, length)| (offset, length));
        has_places(kernel, gradient, places.collect(), element)?;
        let (table, tiles) = Tensor::table(&rows);
        let (table, count) = self.table(kernel, &table)?;
        let arguments = [
            to,
            Argument::address(table.view().address()),
            count.into(),
            tiles.into(),
            u32::from(add).into(),
        ];
        self.launch(kernel, geometry::tiles(tiles), &arguments)
    }

    /// The sum of squares of each tensor's values over `divisor`, in f64: see [`squares`](crate::reference::norms::squares).
    ///
    /// # Errors
    /// When `out` has not one element for each tensor, or the device has failed.
    pub fn squares(&self, out: &mut ViewMut<'_, f64>, tensors: &[View<'_, f32>], divisor: f32) -> Result<(), DeviceError> {
        let kernel = &kernels::SQUARES;
        self.write(kernel, out, tensors.len() as u64)?;
        for tensor in tensors {
            self.read(kernel, tensor, tensor.len() as u64)?;
        }
        let rows: Vec<_> = tensors.iter().map(|tensor| (tensor.address(), tensor.len() as u64)).collect();
        let (rows, tiles) = Values::table(&rows);
        let (table, count) = self.table(kernel, &rows)?;
        // Its sums are added up and it is freed in the order of this stream.
        let of_tiles = DeviceTensor::<f64>::unset(self.device, self.stream, tiles as usize)?;
        let arguments = [
            Argument::address(of_tiles.view().address()),
            Argument::address(table.view().address()),
            count.into(),
            divisor.into(),
        ];
        self.launch(kernel, geometry::squares(tiles), &arguments)?;
        let terms = rows.iter().map(|row| Terms {
            at: of_tiles.view().address() + row.tiles_before * size_of::<f64>() as u64,
            length: row.tiles(),
        });
        self.trees(out, &terms.collect::<Vec<_>>())
    }

    /// The sum of each row's terms, in f64, in an order that their number decides: see [`tree_sum`](crate::reference::norms::tree_sum). The terms are
    /// changed.
    ///
    /// # Errors
    /// When `out` has not one element for each row, or the device has failed.
    pub fn tree_sums(&self, out: &mut ViewMut<'_, f64>, rows: &mut [ViewMut<'_, f64>]) -> Result<(), DeviceError> {
        let mut table = Vec::with_capacity(rows.len());
        for row in rows {
            let length = row.read().len() as u64;
            self.write(&kernels::TREE_SUMS, row, length)?;
            table.push(Terms {
                at: row.read().address(),
                length,
            });
        }
        self.trees(out, &table)
    }

    fn trees(&self, out: &mut ViewMut<'_, f64>, rows: &[Terms]) -> Result<(), DeviceError> {
        let kernel = &kernels::TREE_SUMS;
        let to = self.write(kernel, out, rows.len() as u64)?;
        let (table, count) = self.table(kernel, rows)?;
        let arguments = [to, Argument::address(table.view().address())];
        self.launch(kernel, geometry::tree_sums(count.into()), &arguments)
    }

    /// The BLAKE3 hash of each piece: 32 bytes of `out` for each.
    ///
    /// # Errors
    /// When `out` has not 32 bytes for each piece, or a piece has more than 1 MiB; or the device has failed.
    pub fn hash_pieces(&self, out: &mut ViewMut<'_, u8>, pieces: &[View<'_, u8>]) -> Result<(), DeviceError> {
        let kernel = &kernels::HASH_PIECES;
        let count = pieces.len() as u64;
        let to = self.write(kernel, out, count * HASH_BYTES)?;
        require(
            kernel,
            out.read().address().is_multiple_of(4),
            || "an address that is a multiple of 4",
            || format!("{}", out.read().address()),
        )?;
        let mut rows = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let length = piece.len() as u64;
            require(
                kernel,
                length <= MAX_PIECE_BYTES,
                || format!("a piece of at most {MAX_PIECE_BYTES} bytes"),
                || format!("{length}"),
            )?;
            self.read(kernel, piece, length)?;
            rows.push(Piece {
                bytes: piece.address(),
                length,
            });
        }
        let (table, _) = self.table(kernel, &rows)?;
        let arguments = [to, Argument::address(table.view().address())];
        self.launch(kernel, geometry::pieces(count), &arguments)
    }

    /// A table's rows in the device's memory, valid and freed in the order of this stream.
    fn table<R: bytemuck::NoUninit>(&self, kernel: &Kernel, rows: &[R]) -> Result<(DeviceTensor<u8>, u32), DeviceError> {
        let found = rows.len();
        require(
            kernel,
            found <= MOST_ROWS,
            || format!("at most {MOST_ROWS} tensors or pieces"),
            || format!("{found}"),
        )?;
        let table = DeviceTensor::from_slice(self.device, self.stream, bytemuck::cast_slice(rows))?;
        Ok((table, found as u32))
    }
}

/// Whether all of these lie in the gradient, aligned, and no two overlap. Each is its first byte and its elements.
fn has_places(
    kernel: &Kernel,
    gradient: &View<'_, u8>,
    mut places: Vec<(u64, u64)>,
    element: u64,
) -> Result<(), DeviceError> {
    places.sort_unstable();
    let mut end = 0;
    for (offset, length) in places {
        let is_aligned = offset.is_multiple_of(element) && gradient.address().is_multiple_of(element);
        require(
            kernel,
            is_aligned,
            || format!("places that are multiples of {element}"),
            || format!("{offset}"),
        )?;
        require(
            kernel,
            offset >= end || length == 0,
            || format!("a place from {end} on"),
            || format!("{offset}"),
        )?;
        let after = length.checked_mul(element).and_then(|bytes| bytes.checked_add(offset));
        let fits = after.is_some_and(|after| after <= gradient.len() as u64);
        require(
            kernel,
            fits,
            || format!("a place within {} bytes", gradient.len()),
            || format!("{length} elements from {offset} on"),
        )?;
        end = end.max(after.unwrap_or(end));
    }
    Ok(())
}
