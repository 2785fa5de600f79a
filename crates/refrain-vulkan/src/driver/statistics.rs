//! What a driver tells of a pipeline's machine code (`VK_KHR_pipeline_executable_properties`).

use ash::khr::pipeline_executable_properties::Device as Functions;
use ash::vk;

use super::gpu::failed;
use crate::backend::Failure;
use crate::pipeline::Statistic;

/// The figures of all that a pipeline consists of.
pub(super) fn of(functions: &Functions, pipeline: vk::Pipeline) -> Result<Vec<Statistic>, Failure> {
    let info = vk::PipelineInfoKHR::default().pipeline(pipeline);
    // SAFETY: the extension and its feature are enabled where the functions are loaded.
    let executables = unsafe { functions.get_pipeline_executable_properties(&info) }
        .map_err(failed("vkGetPipelineExecutablePropertiesKHR"))?;
    let mut all = Vec::new();
    for number in 0..executables.len() as u32 {
        let info = vk::PipelineExecutableInfoKHR::default()
            .pipeline(pipeline)
            .executable_index(number);
        // SAFETY: the pipeline was made to tell them, and has an executable of this number.
        let told = unsafe { functions.get_pipeline_executable_statistics(&info) }
            .map_err(failed("vkGetPipelineExecutableStatisticsKHR"))?;
        all.extend(told.iter().map(statistic));
    }
    Ok(all)
}

fn statistic(told: &vk::PipelineExecutableStatisticKHR<'_>) -> Statistic {
    use vk::PipelineExecutableStatisticFormatKHR as Format;
    let name = told.name_as_c_str().unwrap_or_default();
    // SAFETY: the format says which member of the union is set.
    let value = unsafe {
        match told.format {
            Format::BOOL32 => f64::from(told.value.b32),
            Format::INT64 => told.value.i64 as f64,
            Format::UINT64 => told.value.u64 as f64,
            _ => told.value.f64,
        }
    };
    Statistic {
        name: name.to_string_lossy().into_owned(),
        value,
    }
}
