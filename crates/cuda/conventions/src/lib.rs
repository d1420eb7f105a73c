//! What separately built parts of APEX agree on: the environment [`variables`] by which one
//! configures another, where the real driver may be ([`locate`]), how a part recognises the
//! [`cpu_device`], which rank a process is by its [`launchers`]' variables, the names and versions
//! of JSON [`documents`], how the injected library asks for PTX of older GPUs ([`universal`]) and
//! for the memory that kernels [`access`], and which compute [`capability`] it tells.
//! Each is stated here and nowhere else.

pub mod access;
pub mod capability;
pub mod cpu_device;
pub mod documents;
pub mod launchers;
pub mod locate;
pub mod universal;
pub mod variables;
