use refrain::{Array, DType, Device, eval};

use crate::common::{assert_equal, assert_silent, contents, plain, vulkan};

/// Edge cases of every dtype: zeros, ties, integer limits, values that overflow or underflow in f16 and bf16,
/// subnormals of f16 and bf16 that f32 represents, infinities and NaN.
fn floats() -> Vec<f32> {
    let plain = [
        0.0,
        0.25,
        0.5,
        0.75,
        1.0,
        1.5,
        2.5,
        3.5,
        127.5,
        255.0,
        255.5,
        256.0,
        256.5,
        300.0,
        1025.5,
        2049.0,
        2051.0,
        32767.0,
        65503.9,
        65504.0,
        65519.0,
        65520.0,
        65536.0,
        16777217.0,
        2147483520.0,
        2147483648.0,
        4294967040.0,
        4294967296.0,
        1e10,
        3.38e38,
        3.395e38,
        f32::MAX,
        6.1e-5,
        6.0e-8,
        3.0e-8,
        2.9e-8,
        2.0e-38,
        f32::MIN_POSITIVE,
        1.0078125,
        1.011_718_8,
        f32::INFINITY,
    ];
    let negative = plain.iter().map(|x| -x);
    plain.iter().copied().chain(negative).chain([f32::NAN]).collect()
}

fn integers() -> Vec<i32> {
    let plain = [
        0,
        1,
        2,
        3,
        127,
        128,
        255,
        256,
        257,
        2047,
        2049,
        2051,
        65504,
        65519,
        65520,
        16777217,
        33554431,
        1 << 30,
        i32::MAX,
    ];
    plain.iter().flat_map(|&x| [x, -x]).chain([i32::MIN]).collect()
}

/// An array of each dtype with its edge cases, created without a conversion.
fn awkward(device: &Device, dtype: DType) -> Array {
    let floats = floats();
    let n = [floats.len()];
    match dtype {
        DType::F32 => Array::from_slice(device, &floats, &n),
        DType::F16 => Array::from_slice(
            device,
            &floats.iter().map(|&x| half::f16::from_f32(x)).collect::<Vec<_>>(),
            &n,
        ),
        DType::BF16 => Array::from_slice(
            device,
            &floats.iter().map(|&x| half::bf16::from_f32(x)).collect::<Vec<_>>(),
            &n,
        ),
        DType::I32 => Array::from_slice(device, &integers(), &[integers().len()]),
        DType::U32 => {
            let words: Vec<u32> = integers().into_iter().map(|x| x as u32).collect();
            Array::from_slice(device, &words, &[words.len()])
        }
        DType::U8 => Array::from_slice(device, &(0..=255u8).collect::<Vec<_>>(), &[256]),
        DType::Bool => Array::from_slice(device, &[false, true, true], &[3]),
    }
}

/// The bytes, which distinguish zeros of different sign.
fn bytes(array: &Array) -> Vec<u8> {
    array.to_bytes().expect("evaluated")
}

#[test]
fn conversions_between_all_pairs_of_dtypes_agree() {
    let pairs = || {
        DType::ALL
            .iter()
            .flat_map(|&from| DType::ALL.iter().map(move |&to| (from, to)))
    };
    let converted = |device: &Device| {
        let arrays: Vec<Array> = pairs().map(|(from, to)| awkward(device, from).astype(to)).collect();
        eval(&arrays.iter().collect::<Vec<_>>()).expect("every conversion has a kernel");
        arrays
    };
    let expected = converted(&Device::cpu());
    for (name, device) in [("Vulkan", vulkan()), ("plain Vulkan", plain())] {
        for ((from, to), (found, expected)) in pairs().zip(converted(device).iter().zip(&expected)) {
            let context = format!("{from} to {to} on {name}");
            let values = [found, expected].map(|array| contents(array).expect("evaluated"));
            assert_equal(&values[0], &values[1], &context);
            let negative_zeros = |array: &Array| {
                let size = array.dtype().size();
                bytes(array)
                    .chunks(size)
                    .map(|e| e[size - 1] == 0x80 && e[..size - 1].iter().all(|&b| b == 0))
                    .collect::<Vec<_>>()
            };
            if to.is_float() {
                assert_eq!(
                    negative_zeros(found),
                    negative_zeros(expected),
                    "{context}: signs of zeros"
                );
            }
        }
    }
    assert_silent();
}

/// All f16, the ties between neighbours, and the f32 just beside both.
#[test]
fn every_f16_is_rounded_to_bit_by_bit() {
    let finite = 0..half::f16::INFINITY.to_bits();
    let near = |x: f32| [-1, 0, 1].map(|ulp| f32::from_bits(x.to_bits().saturating_add_signed(ulp)));
    let values: Vec<f32> = (finite.map(half::f16::from_bits))
        .flat_map(|x| {
            let above = half::f16::from_bits(x.to_bits() + 1).to_f32().min(65536.0);
            [x.to_f32(), (x.to_f32() + above) / 2.0]
        })
        .flat_map(near)
        .flat_map(|x| [x, -x])
        .collect();
    let expected: Vec<half::f16> = values.iter().map(|&x| half::f16::from_f32(x)).collect();
    for (name, device) in [("CPU", &Device::cpu()), ("Vulkan", vulkan()), ("plain Vulkan", plain())] {
        let found = Array::from_slice(device, &values, &[values.len()]).astype(DType::F16);
        let found = found.to_vec::<half::f16>().expect("evaluated");
        let differs = |number: &usize| found[*number].to_bits() != expected[*number].to_bits();
        let wrong = (0..values.len()).find(differs).map(|number| values[number]);
        assert_eq!(wrong, None, "{name}");
    }
    assert_silent();
}

#[test]
fn conversions_round_to_even_saturate_and_map_nonzero_to_true() {
    let device = Device::cpu();
    let x = Array::from_slice(&device, &[-1.5f32, 0.0, 2.9, 300.0, f32::NAN, f32::INFINITY], &[6]);
    assert_eq!(x.astype(DType::U8).to_vec::<u8>().unwrap(), [0, 0, 2, 255, 0, 255]);
    assert_eq!(
        x.astype(DType::I32).to_vec::<i32>().unwrap(),
        [-1, 0, 2, 300, 0, i32::MAX]
    );
    assert_eq!(
        x.astype(DType::Bool).to_vec::<bool>().unwrap(),
        [true, false, true, true, true, true]
    );
    let ties = Array::from_slice(&device, &[2049.0f32, 2051.0], &[2])
        .astype(DType::F16)
        .astype(DType::F32);
    assert_eq!(ties.to_vec::<f32>().unwrap(), [2048.0, 2052.0]);
    let wrapped = Array::from_slice(&device, &[-1i32, 257], &[2]).astype(DType::U8);
    assert_eq!(wrapped.to_vec::<u8>().unwrap(), [255, 1]);
}

#[test]
fn numbers_keep_their_value_as_operands_of_integer_arrays() {
    let device = Device::cpu();
    let bytes = Array::from_slice(&device, &[1u8, 200], &[2]);
    assert_eq!((&bytes + 100.0).to_vec::<u8>().unwrap(), [101, 44], "u8 wraps");
    assert_eq!((&bytes + 300.0).to_vec::<u32>().unwrap(), [301, 500]);
    assert_eq!((-300.0 + &bytes).to_vec::<i32>().unwrap(), [-299, -100]);
    assert_eq!((&bytes * 0.5).to_vec::<f32>().unwrap(), [0.5, 100.0]);
    let words = Array::from_slice(&device, &[7u32], &[1]);
    assert_eq!((&words - 8.0).to_vec::<u32>().unwrap(), [u32::MAX], "u32 wraps");
    assert_eq!((&words + 1e10).to_vec::<f32>().unwrap(), [1e10 + 7.0]);
    let truth = Array::from_slice(&device, &[true], &[1]);
    assert_eq!((&truth + &truth).to_vec::<i32>().unwrap(), [2]);
    assert_eq!((1.0 / words).to_vec::<f32>().unwrap(), [1.0 / 7.0]);
}
