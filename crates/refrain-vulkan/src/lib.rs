//! The Vulkan runtime: devices, memory by class, queues, pipelines and command lists
