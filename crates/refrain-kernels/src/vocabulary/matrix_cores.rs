//! What kernels know of matrix cores: the size of fragments, and how lanes hold them.

/// Products of square fragments of f16 with sums in f32, by a subgroup.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MatrixCores {
    /// Rows, columns and depth of a fragment.
    pub size: u32,
    /// Rows, columns and depth of what an instruction multiplies: a whole fragment, or, where the order is hidden, a part.
    pub shape: [u32; 3],
    /// How lanes hold a fragment.
    pub order: FragmentOrder,
    /// Whether instructions multiply fragments of half as many columns too, which lanes hold in the same order.
    pub narrow: bool,
}

/// How the lanes of a subgroup hold the rows of a fragment, whether of A, of B transposed, or of sums.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FragmentOrder {
    /// A row lies in four neighbouring lanes, each of which has two pairs of columns, 8 apart: NVIDIA's.
    Quads,
    /// Each lane has a column: Mesa's software driver's.
    Columns,
    /// None that kernels know: fragments are loaded and stored by way of shared memory, where a lane has eight
    /// neighbours of each of its rows.
    Hidden,
}

impl MatrixCores {
    /// The largest fragments that kernels are made for.
    const LARGEST: u32 = 32;

    /// Of instructions that multiply whole fragments, whose order is known.
    pub fn known(size: u32, order: FragmentOrder) -> MatrixCores {
        MatrixCores {
            size,
            shape: [size; 3],
            order,
            narrow: false,
        }
    }

    /// The same by fragments of half as many columns.
    pub(crate) fn narrowed(self) -> MatrixCores {
        let size = self.size;
        MatrixCores {
            shape: [size, size / 2, size],
            ..self
        }
    }

    /// Columns of a fragment of x or of sums.
    pub(crate) fn columns(self) -> u32 {
        if self.is_hidden() { self.size } else { self.shape[1] }
    }

    /// Of instructions that multiply `shape` (rows, columns, depth) by `lanes` lanes, whose order is hidden: the smallest
    /// fragments that have such parts, and of which each lane has eight elements at least. None if there are no such.
    pub fn hidden(shape: [u32; 3], lanes: u32) -> Option<MatrixCores> {
        if !lanes.is_power_of_two() || !shape.iter().all(|&n| n >= 4 && n.is_power_of_two()) {
            return None;
        }
        let mut sizes = (0..).map(|n| 1 << n).take_while(|&size| size <= Self::LARGEST);
        let holds = |size: &u32| shape.iter().all(|n| n <= size) && size * size >= 8 * lanes;
        let size = sizes.find(holds)?;
        let order = FragmentOrder::Hidden;
        let narrow = false;
        Some(MatrixCores {
            size,
            shape,
            order,
            narrow,
        })
    }

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

    /// Row and column of element `number` of lane `lane`, of fragments of `size` rows in which it has `values` values
    /// each.
    pub(crate) fn place(self, size: u32, lanes: u32, values: u32, lane: u32, number: u32) -> [u32; 2] {
        let per_row = self.lanes_per_row(size);
        let row = lane / per_row + number / values * (lanes / per_row);
        [row, self.column_of(lane % per_row, number % values)]
    }
}
