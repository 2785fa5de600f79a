//! Joint traversal of several strided operands of one shape, as `walk.glsl` reads it.

use crate::{Layout, Unsupported};

/// Maximum element index in a shader: indices are signed 32-bit numbers in SPIR-V.
const MAX_ELEMENTS: usize = i32::MAX as usize;

/// Maximum number of dimensions after merging.
pub(crate) const MAX_DIMENSIONS: usize = 8;

/// The merged dimensions of operands that are traversed together: extents, and one stride per operand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Walk {
    /// Outermost first: (extent, stride in each operand).
    dimensions: Vec<(usize, Vec<usize>)>,
}

impl Walk {
    /// Merges adjacent dimensions where all layouts allow it.
    ///
    /// # Errors
    /// Fails if shapes differ, if more than [`MAX_DIMENSIONS`] remain, or if an operand spans too many elements.
    pub(crate) fn new(op: &'static str, layouts: &[&Layout]) -> Result<Walk, Unsupported> {
        let size = |what| Unsupported::Size { op, what };
        let shape = &layouts[0].shape;
        if let Some(other) = layouts.iter().find(|l| l.shape != *shape) {
            return Err(size(format!(
                "operands have different shapes {shape:?} and {:?}",
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
        if dimensions.len() > MAX_DIMENSIONS {
            return Err(size(format!(
                "{} dimensions remain after merging; the maximum is {MAX_DIMENSIONS}",
                dimensions.len()
            )));
        }
        Ok(Walk { dimensions })
    }

    /// Whether every operand is dense and row-major.
    pub(crate) fn is_linear(&self) -> bool {
        match self.dimensions.as_slice() {
            [] => true,
            [(_, strides)] => strides.iter().all(|&s| s == 1),
            _ => false,
        }
    }

    /// Stride of the innermost dimension in operand `operand`; 0 if there is only one element.
    pub(crate) fn inner_stride(&self, operand: usize) -> usize {
        self.dimensions.last().map_or(0, |(_, strides)| strides[operand])
    }

    /// Extent of the innermost dimension; 1 if there is only one element.
    pub(crate) fn inner_extent(&self) -> usize {
        self.dimensions.last().map_or(1, |(extent, _)| *extent)
    }

    /// Strides of the other dimensions in operand `operand`.
    pub(crate) fn outer_strides(&self, operand: usize) -> Vec<usize> {
        let outer = self.dimensions.split_last().map_or(&[][..], |(_, outer)| outer);
        outer.iter().map(|(_, strides)| strides[operand]).collect()
    }

    /// Number of remaining dimensions, a specialisation constant.
    pub(crate) fn rank(&self) -> u32 {
        self.dimensions.len() as u32
    }

    /// Returns extent and strides of each dimension, outermost first.
    pub(crate) fn words(&self) -> Vec<u32> {
        let mut words = Vec::new();
        for (extent, strides) in &self.dimensions {
            words.push(*extent as u32);
            words.extend(strides.iter().map(|&s| s as u32));
        }
        words
    }
}

/// Fails if an operand's elements cannot all be indexed from its first one.
pub(crate) fn check_reach(op: &'static str, layout: &Layout) -> Result<(), Unsupported> {
    let reach = layout.end().saturating_sub(layout.offset);
    if reach.max(layout.count()) > MAX_ELEMENTS {
        return Err(Unsupported::Size {
            op,
            what: format!(
                "an operand of shape {:?} spans {reach} elements; the maximum is {MAX_ELEMENTS}",
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
    fn dimensions_merge_only_if_all_operands_allow_it() {
        let dense = Layout::contiguous(&[2, 3, 4]);
        let rows = Layout::contiguous(&[4]).broadcast(&[2, 3, 4]).expect("rows repeat");
        let walk = Walk::new("test", &[&dense, &rows]).expect("same shape");
        assert_eq!(walk.words(), [6, 4, 0, 4, 1, 1]);
        assert!(!walk.is_linear());
        assert!(Walk::new("test", &[&dense, &dense]).expect("same shape").is_linear());
    }

    #[test]
    fn operands_beyond_signed_indices_are_rejected() {
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
