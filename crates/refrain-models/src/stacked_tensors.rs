//! Several tensors that are read as one.

use refrain_formats::{Error, Tensor};

/// Tensors of one shape and encoding, read as one: their planes are concatenated.
pub struct StackedTensors<'t>(Vec<Tensor<'t>>);

type ReadPlane<'t> = fn(&Tensor<'t>, u64, &mut [u8]) -> Result<(), Error>;

impl<'t> StackedTensors<'t> {
    /// Concatenates tensors of the same encoding. The error is a tensor with another encoding.
    pub fn new(tensors: Vec<Tensor<'t>>) -> Result<StackedTensors<'t>, Tensor<'t>> {
        let has_same_encoding = |tensor: &Tensor<'_>| {
            let first = &tensors[0];
            tensor.info.encoding == first.info.encoding && tensor.scale_encoding() == first.scale_encoding()
        };
        match tensors.iter().find(|tensor| !has_same_encoding(tensor)) {
            Some(other) => Err(*other),
            None => Ok(StackedTensors(tensors)),
        }
    }

    /// The first tensor; all others have the same encoding.
    pub fn first(&self) -> &Tensor<'t> {
        &self.0[0]
    }

    /// Copies bytes of the plain data, starting at `offset`.
    pub fn write_data(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        self.write(self.first().data_bytes(), Tensor::write_data, offset, out)
    }

    /// Copies bytes of the quants, starting at `offset`.
    pub fn write_quants(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        self.write(self.first().quants_bytes(), Tensor::write_quants, offset, out)
    }

    /// Copies bytes of the scales, starting at `offset`.
    pub fn write_scales(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        self.write(self.first().scales_bytes(), Tensor::write_scales, offset, out)
    }

    /// Copies bytes of the biases, starting at `offset`.
    pub fn write_biases(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        self.write(self.first().biases_bytes(), Tensor::write_biases, offset, out)
    }

    /// Lets the operating system drop the files' pages.
    pub fn discard(&self) {
        self.0.iter().for_each(Tensor::discard);
    }

    /// Copies from a plane with `each` bytes per tensor.
    fn write(&self, each: u64, read: ReadPlane<'t>, offset: u64, mut out: &mut [u8]) -> Result<(), Error> {
        let mut at = offset;
        while !out.is_empty() {
            let within = at % each;
            let length = out.len().min((each - within) as usize);
            let (piece, rest) = out.split_at_mut(length);
            read(&self.0[(at / each) as usize], within, piece)?;
            (at, out) = (at + length as u64, rest);
        }
        Ok(())
    }
}
