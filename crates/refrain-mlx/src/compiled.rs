//! Functions of values that run once for each kind of argument, and whose results are one array each afterwards.

use refrain::{Array, Subgraph};

use crate::device::compute_device;
use crate::{DType, Result, Value};

/// What a function made of placeholders.
#[derive(Clone, Debug)]
pub struct Compiled {
    subgraph: Subgraph,
    /// The dtype of each result.
    dtypes: Vec<DType>,
}

impl Compiled {
    /// A value without elements, with the shape and dtype of `value`, for a function to be run with.
    ///
    /// # Errors
    /// Fails if the shape overflows.
    pub fn placeholder(value: &Value) -> Result<Value> {
        let array = Array::input(&compute_device(), "an argument", value.stored(), value.shape());
        value.like(array)
    }

    /// What a function made of these placeholders.
    ///
    /// # Errors
    /// Fails if a result depends on anything else, such as an evaluated array.
    pub fn of(placeholders: &[Value], results: &[Value]) -> Result<Compiled> {
        let subgraph = Subgraph::of(&arrays(placeholders), &arrays(results))?;
        let dtypes = results.iter().map(Value::dtype).collect();
        Ok(Compiled { subgraph, dtypes })
    }

    /// The results for values with the shapes and dtypes of the placeholders.
    ///
    /// # Errors
    /// Fails if they have others.
    pub fn call(&self, values: &[Value]) -> Result<Vec<Value>> {
        let made = self.subgraph.apply(&arrays(values))?;
        let labelled = |(array, &dtype)| Ok(Value::of(array)?.labelled(dtype));
        made.into_iter().zip(&self.dtypes).map(labelled).collect()
    }
}

fn arrays(values: &[Value]) -> Vec<&Array> {
    values.iter().map(Value::array).collect()
}
