//! What kernels know of matrix cores: the size of fragments, and how lanes hold them.

/// Products of square fragments of f16 with sums in f32, by a subgroup.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MatrixCores {
    /// Rows, columns and depth of a fragment: a subgroup's lanes hold eight elements each.
    pub size: u32,
    /// How lanes hold a fragment.
    pub order: FragmentOrder,
}

/// How the lanes of a subgroup hold the rows of a fragment, whether of A, of B transposed, or of sums.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FragmentOrder {
    /// A row lies in four neighbouring lanes, each of which has two pairs of columns, 8 apart: NVIDIA's.
    Quads,
    /// Each lane has a column: Mesa's software driver's.
    Columns,
    /// None that kernels know: fragments are loaded and stored by way of shared memory, where a lane has eight
    /// neighbours of a row.
    Hidden,
}

impl MatrixCores {
    /// Whether fragments go by way of shared memory, since nobody knows which lane holds what.
    pub fn is_hidden(self) -> bool {
        self.order == FragmentOrder::Hidden
    }

    /// Lanes that share a row.
    pub fn lanes_per_row(self) -> u32 {
        self.order.lanes_per_row(self.size)
    }

    /// Values of a row that a lane holds.
    pub(crate) fn values(self) -> u32 {
        self.size / self.lanes_per_row()
    }
}

impl FragmentOrder {
    /// The orders that kernels know of what a device does.
    pub const ALL: [FragmentOrder; 2] = [FragmentOrder::Quads, FragmentOrder::Columns];

    /// Lanes that share a row of fragments of `size` rows.
    fn lanes_per_row(self, size: u32) -> u32 {
        match self {
            FragmentOrder::Quads => 4,
            FragmentOrder::Columns => size,
            FragmentOrder::Hidden => size / 8,
        }
    }

    /// Column of value `value` of a row in lane `lane` of those that share it, in GLSL.
    pub(crate) fn column(self) -> &'static str {
        match self {
            FragmentOrder::Quads => "2u * (lane) + ((value) & 1u) + 8u * ((value) >> 1)",
            FragmentOrder::Columns => "(lane)",
            FragmentOrder::Hidden => "8u * (lane) + (value)",
        }
    }

    /// The same in Rust.
    fn column_of(self, lane: u32, value: u32) -> u32 {
        match self {
            FragmentOrder::Quads => 2 * lane + (value & 1) + 8 * (value >> 1),
            FragmentOrder::Columns => lane,
            FragmentOrder::Hidden => 8 * lane + value,
        }
    }

    /// Row and column of element `number` of lane `lane`, of fragments of `size` rows.
    pub(crate) fn place(self, size: u32, lanes: u32, lane: u32, number: u32) -> (u32, u32) {
        let per_row = self.lanes_per_row(size);
        let values = size / per_row;
        let row = lane / per_row + number / values * (lanes / per_row);
        (row, self.column_of(lane % per_row, number % values))
    }
}
