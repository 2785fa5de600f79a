//! Properties of matrix cores: the fragment size, and the layout of fragments in lanes.

/// Matrix cores: a subgroup multiplies square f16 fragments with f32 accumulators.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MatrixCores {
    /// Rows, columns and depth of a fragment.
    pub size: u32,
    /// M, N and K of an instruction. With an opaque layout it may be smaller than a fragment.
    pub shape: [u32; 3],
    /// Layout of a fragment in lanes.
    pub order: FragmentOrder,
    /// Whether there are also instructions for fragments with half as many columns, in the same layout.
    pub narrow: bool,
}

/// Layout of a fragment's rows in the lanes of a subgroup. It holds for A, for B transposed, and for accumulators.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FragmentOrder {
    /// Four consecutive lanes hold a row; each has two pairs of columns, 8 apart. NVIDIA's layout.
    Quads,
    /// Each lane holds a column. The layout of Mesa's software driver.
    Columns,
    /// Unknown to kernels. Fragments are loaded and stored through shared memory, where a lane has eight consecutive
    /// values of each of its rows.
    Opaque,
}

impl MatrixCores {
    /// Maximum fragment size that kernels support.
    const MAX_SIZE: u32 = 32;

    /// Matrix cores whose instructions multiply whole fragments, in a known layout.
    pub fn with_order(size: u32, order: FragmentOrder) -> MatrixCores {
        MatrixCores {
            size,
            shape: [size; 3],
            order,
            narrow: false,
        }
    }

    /// The same matrix cores with fragments of half as many columns.
    pub(crate) fn narrowed(self) -> MatrixCores {
        let size = self.size;
        MatrixCores {
            shape: [size, size / 2, size],
            ..self
        }
    }

    /// Columns of a fragment of x or of accumulators.
    pub(crate) fn columns(self) -> u32 {
        if self.is_opaque() { self.size } else { self.shape[1] }
    }

    /// Matrix cores with an opaque layout, whose instructions multiply `shape` (M, N, K) with `lanes` lanes. The
    /// fragment size is the smallest that `shape` divides and that gives each lane at least eight elements. `None` if
    /// there is no such size.
    pub fn opaque(shape: [u32; 3], lanes: u32) -> Option<MatrixCores> {
        if !lanes.is_power_of_two() || !shape.iter().all(|&n| n >= 4 && n.is_power_of_two()) {
            return None;
        }
        let mut sizes = (0..).map(|n| 1 << n).take_while(|&size| size <= Self::MAX_SIZE);
        let holds = |size: &u32| shape.iter().all(|n| n <= size) && size * size >= 8 * lanes;
        let size = sizes.find(holds)?;
        let order = FragmentOrder::Opaque;
        let narrow = false;
        Some(MatrixCores {
            size,
            shape,
            order,
            narrow,
        })
    }

    /// Whether the layout is unknown, so that fragments go through shared memory.
    pub fn is_opaque(self) -> bool {
        self.order == FragmentOrder::Opaque
    }

    /// Number of lanes that share a row.
    pub fn lanes_per_row(self) -> u32 {
        self.order.lanes_per_row(self.size)
    }

    /// Number of values of a row that a lane holds.
    pub(crate) fn values(self) -> u32 {
        self.size / self.lanes_per_row()
    }
}

impl FragmentOrder {
    /// The layouts that kernels know.
    pub const ALL: [FragmentOrder; 2] = [FragmentOrder::Quads, FragmentOrder::Columns];

    /// Number of lanes that share a row of a fragment of `size` rows.
    fn lanes_per_row(self, size: u32) -> u32 {
        match self {
            FragmentOrder::Quads => 4,
            FragmentOrder::Columns => size,
            FragmentOrder::Opaque => size / 8,
        }
    }

    /// GLSL expression for the column of value `value` in lane `lane` of the lanes that share a row.
    pub(crate) fn column(self) -> &'static str {
        match self {
            FragmentOrder::Quads => "2u * (lane) + ((value) & 1u) + 8u * ((value) >> 1)",
            FragmentOrder::Columns => "(lane)",
            FragmentOrder::Opaque => "8u * (lane) + (value)",
        }
    }

    /// As [`FragmentOrder::column`], in Rust.
    fn column_of(self, lane: u32, value: u32) -> u32 {
        match self {
            FragmentOrder::Quads => 2 * lane + (value & 1) + 8 * (value >> 1),
            FragmentOrder::Columns => lane,
            FragmentOrder::Opaque => 8 * lane + value,
        }
    }

    /// Returns row and column of element `number` of lane `lane`, for fragments of `size` rows and `values` values of a
    /// row per lane.
    pub(crate) fn position(self, size: u32, lanes: u32, values: u32, lane: u32, number: u32) -> [u32; 2] {
        let per_row = self.lanes_per_row(size);
        let row = lane / per_row + number / values * (lanes / per_row);
        [row, self.column_of(lane % per_row, number % values)]
    }
}
