//! Conventions between separately built parts of APEX: the environment [`variables`] by which one
//! configures another, the places of the real driver ([`locate`]), and the mark of the
//! [`cpu_device`]. Each is stated here and nowhere else.

pub mod cpu_device;
pub mod locate;
pub mod variables;
