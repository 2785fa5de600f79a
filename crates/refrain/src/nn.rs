//! Neural network layers: [`Linear`], [`RmsNorm`], and the [`Weight`]s that they hold.

use crate::{Array, DType, Device, Quantised, fast};

/// A weight matrix `[N, K]` in checkpoint layout, dense or quantised.
#[derive(Clone)]
pub enum Weight {
    /// f32, f16 or bf16 elements.
    Dense(Array),
    /// Quantised elements.
    Quantised(Quantised),
}

impl Weight {
    /// x `[T, K]` · Wᵀ → f32 `[T, N]`.
    #[track_caller]
    pub fn matmul(&self, x: &Array) -> Array {
        match self {
            Weight::Dense(w) => x.matmul(&w.transpose()),
            Weight::Quantised(w) => w.matmul(x),
        }
    }

    /// The device that stores it.
    pub fn device(&self) -> &Device {
        match self {
            Weight::Dense(w) => w.device(),
            Weight::Quantised(w) => w.quants.device(),
        }
    }

    /// Rows `indices` `[T]` → f32 `[T, K]`: an embedding.
    #[track_caller]
    pub fn take(&self, indices: &Array) -> Array {
        match self {
            Weight::Dense(w) => w.take(indices, 0).astype(DType::F32),
            Weight::Quantised(w) => w.take(indices),
        }
    }
}

impl From<Array> for Weight {
    fn from(weight: Array) -> Weight {
        Weight::Dense(weight)
    }
}

impl From<Quantised> for Weight {
    fn from(weight: Quantised) -> Weight {
        Weight::Quantised(weight)
    }
}

impl From<&Array> for Weight {
    fn from(weight: &Array) -> Weight {
        Weight::Dense(weight.clone())
    }
}

impl From<&Quantised> for Weight {
    fn from(weight: &Quantised) -> Weight {
        Weight::Quantised(weight.clone())
    }
}

impl From<&Weight> for Weight {
    fn from(weight: &Weight) -> Weight {
        weight.clone()
    }
}

/// A linear layer: y = x · Wᵀ + b.
#[derive(Clone)]
pub struct Linear {
    /// W `[outputs, inputs]`.
    pub weight: Weight,
    /// b `[outputs]`, optional.
    pub bias: Option<Array>,
}

impl Linear {
    /// A layer with weights `[outputs, inputs]`, dense or quantised, and an optional bias `[outputs]`.
    pub fn new(weight: impl Into<Weight>, bias: Option<Array>) -> Linear {
        Linear {
            weight: weight.into(),
            bias,
        }
    }

    /// The device that stores it.
    pub fn device(&self) -> &Device {
        self.weight.device()
    }

    /// x `[T, inputs]` → f32 `[T, outputs]`.
    #[track_caller]
    pub fn forward(&self, x: &Array) -> Array {
        let y = self.weight.matmul(x);
        match &self.bias {
            Some(bias) => y + bias,
            None => y,
        }
    }
}

/// RMS norm (Zhang & Sennrich 2019): x / √(mean(x²) + eps) · weight.
#[derive(Clone)]
pub struct RmsNorm {
    /// The scale of each element, `[n]`.
    pub weight: Array,
    /// Added to mean(x²), so that the root is not zero.
    pub eps: f32,
}

impl RmsNorm {
    /// Normalises the last dimension of x `[.., n]`.
    #[track_caller]
    pub fn forward(&self, x: &Array) -> Array {
        fast::rms_norm(x, Some(&self.weight), self.eps)
    }
}
