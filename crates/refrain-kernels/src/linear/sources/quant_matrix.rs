use refrain_quant::Define;

use crate::kit::text::{SourceBuilder, address, is_wide, require_dtype, require_shape};
use crate::{DType, OperandSpec, Push, Unsupported};
use refrain_quant::QuantFormat;

const OP: &str = "quantised";

/// The checked planes of a quantised matrix.
#[derive(Clone)]
pub(crate) struct QuantMatrix<'a> {
    pub format: QuantFormat,
    pub rows: usize,
    pub columns: usize,
    pub scales: &'a OperandSpec,
    pub biases: Option<&'a OperandSpec>,
    addresses: Vec<Push>,
}

impl<'a> QuantMatrix<'a> {
    /// Checks the planes. `number` is the quants' operand number; scales and biases follow.
    pub(crate) fn new(
        format: QuantFormat,
        number: usize,
        quants: &'a OperandSpec,
        scales: &'a OperandSpec,
        biases: Option<&'a OperandSpec>,
    ) -> Result<QuantMatrix<'a>, Unsupported> {
        let &[rows, words] = &quants.layout.shape[..] else {
            let what = format!("quants have shape {:?}, expected two dimensions", quants.layout.shape);
            return Err(Unsupported::Size { op: OP, what });
        };
        let columns = format.columns(words);
        format.check(columns)?;
        if format.words(columns) != words {
            let what = format!("{words} words per row are not a whole number of {format} values");
            return Err(Unsupported::Size { op: OP, what });
        }
        require_dtype(OP, quants, DType::U32)?;
        if biases.is_some() != format.has_biases() {
            let what = match biases {
                Some(_) => format!("{format} has no biases, but some are given"),
                None => format!("{format} needs biases"),
            };
            return Err(Unsupported::Size { op: OP, what });
        }
        let parameters = [rows, format.scales(columns)];
        require_shape(OP, "scales", scales, &parameters)?;
        if let Some(biases) = biases {
            require_shape(OP, "biases", biases, &parameters)?;
        }
        let mut addresses = Vec::new();
        for (i, plane) in [Some(quants), Some(scales), biases].into_iter().flatten().enumerate() {
            if !plane.layout.is_contiguous() {
                return Err(Unsupported::NeedsContiguous {
                    op: OP,
                    operand: number + i,
                });
            }
            addresses.push(address(OP, number + i, plane)?);
            if i > 0 {
                if !(plane.dtype.to_scale_type()).is_some_and(|stored| format.takes_scales(stored)) {
                    return Err(Unsupported::DType {
                        op: OP,
                        dtype: plane.dtype,
                    });
                }
            } else if !is_wide(plane, &[]) {
                // Rows are read 16 bytes at a time; a copy would be aligned.
                return Err(Unsupported::NeedsContiguous {
                    op: OP,
                    operand: number,
                });
            }
        }
        Ok(QuantMatrix {
            format,
            rows,
            columns,
            scales,
            biases,
            addresses,
        })
    }

    /// Number of planes, each of which is an operand.
    pub(crate) fn planes(&self) -> usize {
        self.addresses.len()
    }

    /// Addresses of the planes.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = Push> + '_ {
        self.addresses.iter().cloned()
    }

    /// Adds the source that shaders need to read the planes.
    pub(crate) fn declare<'t>(&self, text: SourceBuilder<'t>) -> SourceBuilder<'t> {
        let [code, scales] = refrain_quant::declarations(self.format);
        let define = |text: SourceBuilder<'t>, define: &Define| text.define(define.name, &define.value);
        let text = code.iter().fold(text, define).stored_input("scales", self.scales.dtype);
        let mut text = scales.iter().fold(text, define);
        if let Some(biases) = self.biases {
            text = text.define("BIASES", 1).stored_input("biases", biases.dtype);
        }
        text.body(&refrain_quant::unpacking(self.format))
    }
}

/// Consecutive quantised values that an invocation loads at once (a run).
pub(crate) fn quant_run(format: QuantFormat) -> usize {
    if format.bits == 8 { 4 } else { 8 }
}
