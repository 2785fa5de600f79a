//! Visiting several strided operands of one shape together, as `walk.glsl` reads it.

use crate::{Layout, Unsupported};

/// Largest element number that a shader forms: indices are signed 32-bit numbers in SPIR-V.
const MOST_ELEMENTS: usize = i32::MAX as usize;

/// Most dimensions that may remain once neighbours are merged.
pub(crate) const MOST_DIMENSIONS: usize = 8;

/// The dimensions of operands that are visited together: extents, and one stride per operand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Walk {
    /// Outermost first: (extent, stride in each operand).
    dimensions: Vec<(usize, Vec<usize>)>,
}

impl Walk {
    /// Merges neighbouring dimensions wherever all layouts allow it.
    ///
    /// # Errors
    /// When shapes differ, more than [`MOST_DIMENSIONS`] remain, or an operand reaches too far.
    pub(crate) fn new(op: &'static str, layouts: &[&Layout]) -> Result<Walk, Unsupported> {
        let size = |what| Unsupported::Size { op, what };
        let shape = &layouts[0].shape;
        if let Some(other) = layouts.iter().find(|l| l.shape != *shape) {
            return Err(size(format!(
                "operands of shapes {shape:?} and {:?} do not go together",
                other.shape
            )));
        }
        for layout in layouts {
            check_reach(op, layout)?;
        }
        let mut dimensions: Vec<(usize, Vec<usize>)> = Vec::new();
        for (d, &extent) in shape.iter().enumerate().filter(|&(_, &extent)| extent != 1) {
            let strides: Vec<usize> = layouts.iter().map(|l| l.strides[d]).collect();
            match dimensions.last_mut() {
                Some((outer, outer_strides)) if outer_strides.iter().zip(&strides).all(|(o, s)| *o == s * extent) => {
                    *outer *= extent;
                    *outer_strides = strides;
                }
                _ => dimensions.push((extent, strides)),
            }
        }
        if dimensions.len() > MOST_DIMENSIONS {
            return Err(size(format!(
                "{} dimensions cannot be merged further; at most {MOST_DIMENSIONS} are possible",
                dimensions.len()
            )));
        }
        Ok(Walk { dimensions })
    }

    /// Whether every operand's elements lie together in row-major order.
    pub(crate) fn is_linear(&self) -> bool {
        match self.dimensions.as_slice() {
            [] => true,
            [(_, strides)] => strides.iter().all(|&s| s == 1),
            _ => false,
        }
    }

    /// The stride of the innermost dimension in operand `operand` (0 when there is one element).
    pub(crate) fn inner_stride(&self, operand: usize) -> usize {
        self.dimensions.last().map_or(0, |(_, strides)| strides[operand])
    }

    /// Number of dimensions left: the shader is specialised to it.
    pub(crate) fn rank(&self) -> u32 {
        self.dimensions.len() as u32
    }

    /// For each dimension, outermost first, its extent and strides.
    pub(crate) fn words(&self) -> Vec<u32> {
        let mut words = Vec::new();
        for (extent, strides) in &self.dimensions {
            words.push(*extent as u32);
            words.extend(strides.iter().map(|&s| s as u32));
        }
        words
    }
}

/// Fails when an operand's elements cannot all be numbered from its first one.
pub(crate) fn check_reach(op: &'static str, layout: &Layout) -> Result<(), Unsupported> {
    let reach = layout.end().saturating_sub(layout.offset);
    if reach.max(layout.count()) > MOST_ELEMENTS {
        return Err(Unsupported::Size {
            op,
            what: format!(
                "an operand of shape {:?} spans {reach} elements; the most is {MOST_ELEMENTS}",
                layout.shape
            ),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_merge_only_where_all_operands_allow_it() {
        let dense = Layout::contiguous(&[2, 3, 4]);
        let rows = Layout::contiguous(&[4]).broadcast(&[2, 3, 4]).expect("rows repeat");
        let walk = Walk::new("test", &[&dense, &rows]).expect("same shape");
        assert_eq!(walk.words(), [6, 4, 0, 4, 1, 1]);
        assert!(!walk.is_linear());
        assert!(Walk::new("test", &[&dense, &dense]).expect("same shape").is_linear());
    }

    #[test]
    fn operands_beyond_signed_indices_are_refused() {
        let huge = Layout::contiguous(&[1 << 16, 1 << 16]);
        assert!(Walk::new("test", &[&huge]).is_err());
        let spread = Layout {
            shape: vec![2].into(),
            strides: vec![1 << 31].into(),
            offset: 0,
        };
        assert!(Walk::new("test", &[&spread]).is_err());
    }
}
