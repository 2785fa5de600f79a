use refrain::fast;
use refrain::{Array, DType, Device, QuantFormat, Quantised};
use refrain_lm::{AttentionParams, BatchTokens, RopeParams, paged_attention, slots};

/// Sizes of a typical decoder: pre-norm blocks of grouped-query attention over a paged cache and a gated feed-forward
/// network, with weights in Q4_0.
#[derive(Clone, Copy)]
pub struct Extents {
    pub layers: usize,
    pub hidden: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub inner: usize,
    pub vocabulary: usize,
}

/// A decoder's weights (zeros) and its KV cache.
pub struct Decoder {
    extents: Extents,
    device: Device,
    layers: Vec<Layer>,
    embedding: Quantised,
    norm: Array,
    frequencies: Array,
}

struct Layer {
    norms: [Array; 4],
    q: Quantised,
    k: Quantised,
    v: Quantised,
    o: Quantised,
    gate: Quantised,
    up: Quantised,
    down: Quantised,
    keys: Array,
    values: Array,
}

const PAGE: usize = 16;
const PAGES: usize = 4;

fn weight(device: &Device, dtype: DType, shape: &[usize]) -> Array {
    Array::weight(device, dtype, shape, &mut |_, piece| piece.fill(0)).expect("memory for a weight")
}

fn matrix(device: &Device, rows: usize, columns: usize) -> Quantised {
    Quantised {
        format: QuantFormat::Q4_0,
        quants: weight(device, DType::U32, &[rows, columns / 8]),
        scales: weight(device, DType::F16, &[rows, columns / 32]),
        biases: None,
    }
}

impl Decoder {
    pub fn new(device: &Device, extents: Extents) -> Decoder {
        let Extents {
            hidden,
            heads,
            kv_heads,
            head_dim,
            inner,
            ..
        } = extents;
        let layer = |_| Layer {
            norms: [hidden, hidden, head_dim, head_dim].map(|n| weight(device, DType::F32, &[n])),
            q: matrix(device, heads * head_dim, hidden),
            k: matrix(device, kv_heads * head_dim, hidden),
            v: matrix(device, kv_heads * head_dim, hidden),
            o: matrix(device, hidden, heads * head_dim),
            gate: matrix(device, inner, hidden),
            up: matrix(device, inner, hidden),
            down: matrix(device, hidden, inner),
            keys: Array::state(device, DType::F16, &[PAGE * PAGES, kv_heads, head_dim]).expect("a cache"),
            values: Array::state(device, DType::F16, &[PAGE * PAGES, kv_heads, head_dim]).expect("a cache"),
        };
        Decoder {
            extents,
            device: device.clone(),
            layers: (0..extents.layers).map(layer).collect(),
            embedding: matrix(device, extents.vocabulary, hidden),
            norm: weight(device, DType::F32, &[hidden]),
            frequencies: weight(device, DType::F32, &[head_dim / 2]),
        }
    }

    /// Logits `[1, vocabulary]` after `tokens` tokens of one sequence; all inputs are placeholders.
    pub fn step(&self, tokens: usize) -> Array {
        let e = self.extents;
        let input = |name: &str, dtype| Array::input(&self.device, name, dtype, &[tokens]);
        let (positions, sequences) = (input("positions", DType::I32), input("sequences", DType::U32));
        let pages = Array::input(&self.device, "pages", DType::U32, &[1, PAGES]);
        let batch = BatchTokens {
            positions: &positions,
            sequences: &sequences,
            pages: &pages,
        };
        let slots = slots(batch, PAGE);
        let params = AttentionParams {
            scale: 0.125,
            page_size: PAGE as u32,
            window: None,
            decode: tokens == 1,
            blocks: [None; 2],
        };
        let rope = RopeParams {
            dims: e.head_dim,
            interleaved: false,
            scale: 1.0,
        };
        let norm = |x: &Array, weight: &Array| fast::rms_norm(x, Some(weight), 1e-6);
        let heads = |x: Array, n: usize| x.reshape(&[-1, n as isize, e.head_dim as isize]);
        let mut x = self.embedding.take(&input("tokens", DType::U32));
        for layer in &self.layers {
            let [before, between, q_norm, k_norm] = &layer.norms;
            let h = norm(&x, before);
            let q = norm(&heads(layer.q.matmul(&h), e.heads), q_norm);
            let k = norm(&heads(layer.k.matmul(&h), e.kv_heads), k_norm);
            let [q, k] = [q, k].map(|x| refrain_lm::rope(&x, &positions, &self.frequencies, rope));
            let keys = layer.keys.write_rows(&k, &slots);
            let values = layer.values.write_rows(&heads(layer.v.matmul(&h), e.kv_heads), &slots);
            let attn_out = paged_attention(&q, &keys, &values, batch, params);
            x = &x + layer.o.matmul(&attn_out.reshape(&[tokens as isize, -1]));
            let h = norm(&x, between);
            x = &x + layer.down.matmul(&(layer.gate.matmul(&h).silu() * layer.up.matmul(&h)));
        }
        self.embedding
            .matmul(&norm(&x.slice(0, tokens - 1, tokens), &self.norm))
    }
}
