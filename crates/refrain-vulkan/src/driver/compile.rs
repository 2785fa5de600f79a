//! Creates compute pipelines from SPIR-V.

use ash::vk::{self, Handle};

use super::failure::failed;
use crate::backend::{Failure, RawPipeline};
use crate::feature::{Feature, FeatureSet};
use crate::kernel::Kernel;

/// Creates the pipeline of a kernel. The flag is true if the driver found it in its cache.
pub(super) fn create(
    device: &ash::Device,
    cache: vk::PipelineCache,
    features: &FeatureSet,
    kernel: &Kernel,
    spirv: &[u32],
    flags: vk::PipelineCreateFlags,
) -> Result<(RawPipeline, bool), Failure> {
    let ranges = [vk::PushConstantRange::default()
        .stage_flags(vk::ShaderStageFlags::COMPUTE)
        .size(kernel.push_bytes)];
    let mut info = vk::PipelineLayoutCreateInfo::default();
    if kernel.push_bytes > 0 {
        info = info.push_constant_ranges(&ranges);
    }
    // SAFETY: the range was checked against the limit of the device.
    let layout = unsafe { device.create_pipeline_layout(&info, None) }.map_err(failed("vkCreatePipelineLayout"))?;
    let info = vk::ShaderModuleCreateInfo::default().code(spirv);
    // SAFETY: the SPIR-V comes from the compiler, or from its checksummed copy on disk.
    let module = unsafe { device.create_shader_module(&info, None) };
    let created = module.map_err(failed("vkCreateShaderModule")).and_then(|module| {
        let created = create_with(device, cache, features, kernel, module, layout, flags);
        // SAFETY: pipelines do not need their modules once created.
        unsafe { device.destroy_shader_module(module, None) };
        created
    });
    if created.is_err() {
        // SAFETY: nothing uses the layout.
        unsafe { device.destroy_pipeline_layout(layout, None) };
    }
    let (pipeline, hit) = created?;
    Ok((
        RawPipeline {
            pipeline: pipeline.as_raw(),
            layout: layout.as_raw(),
        },
        hit,
    ))
}

fn create_with(
    device: &ash::Device,
    cache: vk::PipelineCache,
    features: &FeatureSet,
    kernel: &Kernel,
    module: vk::ShaderModule,
    layout: vk::PipelineLayout,
    flags: vk::PipelineCreateFlags,
) -> Result<(vk::Pipeline, bool), Failure> {
    let entry = |(index, (id, _)): (usize, &(u32, u32))| vk::SpecializationMapEntry {
        constant_id: *id,
        offset: 4 * index as u32,
        size: 4,
    };
    let entries: Vec<_> = kernel.constants.iter().enumerate().map(entry).collect();
    let data: Vec<u8> = kernel
        .constants
        .iter()
        .flat_map(|(_, value)| value.to_ne_bytes())
        .collect();
    let constants = vk::SpecializationInfo::default().map_entries(&entries).data(&data);
    let mut subgroup = vk::PipelineShaderStageRequiredSubgroupSizeCreateInfo::default();
    let mut stage = vk::PipelineShaderStageCreateInfo::default()
        .stage(vk::ShaderStageFlags::COMPUTE)
        .module(module)
        .name(c"main")
        .specialization_info(&constants);
    if let Some(size) = kernel.subgroup_size
        && features.contains(Feature::SubgroupSizeControl)
    {
        subgroup = subgroup.required_subgroup_size(size);
        stage = stage.push_next(&mut subgroup);
    }
    if kernel.full_subgroups && features.contains(Feature::FullSubgroups) {
        stage = stage.flags(vk::PipelineShaderStageCreateFlags::REQUIRE_FULL_SUBGROUPS);
    }
    let mut pipeline_feedback = vk::PipelineCreationFeedback::default();
    let mut stages = [vk::PipelineCreationFeedback::default()];
    let mut feedback = vk::PipelineCreationFeedbackCreateInfo::default()
        .pipeline_creation_feedback(&mut pipeline_feedback)
        .pipeline_stage_creation_feedbacks(&mut stages);
    let info = vk::ComputePipelineCreateInfo::default()
        .flags(flags)
        .stage(stage)
        .layout(layout)
        .push_next(&mut feedback);
    // SAFETY: all that the structures point to outlives the call.
    let created = unsafe { device.create_compute_pipelines(cache, &[info], None) };
    let pipelines = created.map_err(|(_, code)| failed("vkCreateComputePipelines")(code))?;
    use vk::PipelineCreationFeedbackFlags as Feedback;
    let hit = Feedback::VALID | Feedback::APPLICATION_PIPELINE_CACHE_HIT;
    Ok((pipelines[0], pipeline_feedback.flags.contains(hit)))
}
