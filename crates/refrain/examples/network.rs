//! The forward pass of a two-layer network, on the CPU executor and on a Vulkan device if there is one.
//!
//! The network computes exclusive or: the probability that exactly one of two inputs is true.
//!
//! ```sh
//! cargo run -p refrain --example network
//! ```

use refrain::nn::Linear;
use refrain::{Array, DType, Device, Error};
use refrain_vulkan::{DeviceChoice, OpenOptions, Options, Vulkan};

/// A layer with row-major weights `[outputs, inputs]`, stored in f16, and biases `[outputs]`.
fn linear(device: &Device, weight: &[f32], bias: &[f32]) -> Linear {
    let shape = [bias.len(), weight.len() / bias.len()];
    let weight = Array::from_slice(device, weight, &shape).astype(DType::F16);
    Linear::new(weight, Some(Array::from_slice(device, bias, &[bias.len()])))
}

/// Two layers with tanh between them and a softmax at the end.
struct Network {
    hidden: Linear,
    output: Linear,
}

impl Network {
    fn new(device: &Device) -> Network {
        // The first hidden unit computes "at least one is true", the second "both are true".
        Network {
            hidden: linear(device, &[4.0, 4.0, 4.0, 4.0], &[-2.0, -6.0]),
            output: linear(device, &[-3.0, 3.0, 3.0, -3.0], &[3.0, -3.0]),
        }
    }

    /// x f32 `[rows, 2]` → probabilities f32 `[rows, 2]` of "equal" and "different".
    fn forward(&self, x: &Array) -> Array {
        self.output.forward(&self.hidden.forward(x).tanh()).softmax()
    }
}

const INPUTS: [f32; 8] = [0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0];

/// Computes on both devices and compares the results.
///
/// # Errors
/// Returns errors of the evaluation.
pub fn main() -> Result<(), Error> {
    let on_cpu = run(&Device::cpu())?;
    match vulkan() {
        Ok(device) => {
            let on_gpu = run(&device)?;
            let difference = on_cpu
                .iter()
                .zip(&on_gpu)
                .map(|(a, b)| (a - b).abs())
                .fold(0.0, f32::max);
            assert!(difference < 1e-5, "the devices differ by {difference}");
            println!("both agree within {difference:e}");
        }
        Err(why) => println!("there is no Vulkan device to compare with: {why}"),
    }
    Ok(())
}

/// The Vulkan device that the runtime ranks best.
fn vulkan() -> Result<Device, refrain_vulkan::Error> {
    let vulkan = Vulkan::load(Options::default())?;
    let index = vulkan.choose(&DeviceChoice::Auto)?;
    Ok(Device::vulkan(vulkan.open(index, &OpenOptions::default())?))
}

/// Computes the probabilities `[4, 2]` of all four inputs, checks and prints them.
///
/// # Errors
/// Returns errors of the evaluation.
pub fn run(device: &Device) -> Result<Vec<f32>, Error> {
    let network = Network::new(device);
    let inputs = Array::from_slice(device, &INPUTS, &[4, 2]);
    let probabilities = network.forward(&inputs);
    let likelier = probabilities.argmax();
    // One plan and one submit compute both.
    refrain::eval(&[&probabilities, &likelier])?;

    println!("computed by {}", device.name());
    let (probabilities, likelier) = (probabilities.to_vec::<f32>()?, likelier.to_vec::<u32>()?);
    for (row, pair) in INPUTS.chunks(2).enumerate() {
        println!("{pair:?}: different with probability {:.4}", probabilities[2 * row + 1]);
    }
    assert_eq!(likelier, [0, 1, 1, 0]);
    Ok(probabilities)
}
