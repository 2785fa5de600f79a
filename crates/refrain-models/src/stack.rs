use refrain_formats::{Error, Tensor};

/// Tensors of one shape and encoding, read as one: their planes lie one after the other.
pub struct Stack<'t>(Vec<Tensor<'t>>);

type Read<'t> = fn(&Tensor<'t>, u64, &mut [u8]) -> Result<(), Error>;

impl<'t> Stack<'t> {
    /// One after the other, if all are alike; else one that is not.
    pub fn new(tensors: Vec<Tensor<'t>>) -> Result<Stack<'t>, Tensor<'t>> {
        let alike = |tensor: &Tensor<'_>| {
            let first = &tensors[0];
            tensor.info.encoding == first.info.encoding && tensor.scale_encoding() == first.scale_encoding()
        };
        match tensors.iter().find(|tensor| !alike(tensor)) {
            Some(other) => Err(*other),
            None => Ok(Stack(tensors)),
        }
    }

    /// The first, which the others are like.
    pub fn first(&self) -> &Tensor<'t> {
        &self.0[0]
    }

    /// Bytes from `offset` on of the plain data.
    pub fn write_data(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        self.write(self.first().data_bytes(), Tensor::write_data, offset, out)
    }

    /// Bytes from `offset` on of the quants.
    pub fn write_quants(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        self.write(self.first().quants_bytes(), Tensor::write_quants, offset, out)
    }

    /// Bytes from `offset` on of the scales.
    pub fn write_scales(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        self.write(self.first().scales_bytes(), Tensor::write_scales, offset, out)
    }

    /// Bytes from `offset` on of the biases.
    pub fn write_biases(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        self.write(self.first().biases_bytes(), Tensor::write_biases, offset, out)
    }

    /// Lets the files' pages go.
    pub fn discard(&self) {
        self.0.iter().for_each(Tensor::discard);
    }

    /// From a plane of which each tensor has `each` bytes.
    fn write(&self, each: u64, read: Read<'t>, offset: u64, mut out: &mut [u8]) -> Result<(), Error> {
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
