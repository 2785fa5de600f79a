//! Statistics of the machine code of a pipeline (`VK_KHR_pipeline_executable_properties`).

use ash::khr::pipeline_executable_properties::Device as Functions;
use ash::vk;

use super::failure::failed;
use crate::backend::Failure;
use crate::kernel::Statistic;

/// Returns the statistics of all executables of a pipeline.
pub(super) fn of(functions: &Functions, pipeline: vk::Pipeline) -> Result<Vec<Statistic>, Failure> {
    let info = vk::PipelineInfoKHR::default().pipeline(pipeline);
    // SAFETY: the extension and its feature are enabled where the functions are loaded.
    let executables = unsafe { functions.get_pipeline_executable_properties(&info) }
        .map_err(failed("vkGetPipelineExecutablePropertiesKHR"))?;
    let mut all = Vec::new();
    for index in 0..executables.len() as u32 {
        let info = vk::PipelineExecutableInfoKHR::default()
            .pipeline(pipeline)
            .executable_index(index);
        // SAFETY: the pipeline was created to capture statistics and has an executable of this index.
        let statistics = unsafe { functions.get_pipeline_executable_statistics(&info) }
            .map_err(failed("vkGetPipelineExecutableStatisticsKHR"))?;
        all.extend(statistics.iter().map(statistic));
    }
    Ok(all)
}

fn statistic(raw: &vk::PipelineExecutableStatisticKHR<'_>) -> Statistic {
    use vk::PipelineExecutableStatisticFormatKHR as Format;
    let name = raw.name_as_c_str().unwrap_or_default();
    // SAFETY: the format determines which member of the union is set.
    let value = unsafe {
        match raw.format {
            Format::BOOL32 => f64::from(raw.value.b32),
            Format::INT64 => raw.value.i64 as f64,
            Format::UINT64 => raw.value.u64 as f64,
            _ => raw.value.f64,
        }
    };
    Statistic {
        name: name.to_string_lossy().into_owned(),
        value,
    }
}
