//! Texture and surface objects.

use crate::context;
use crate::entry::{entries, read, supported, write};
use crate::error::ensure;
use crate::image::texture_object;
use cuda_abi::types::*;

entries! {
    /// Creates a texture object.
    fn cuTexObjectCreate(
        object: *mut CUtexObject,
        resource: *const CUDA_RESOURCE_DESC,
        description: *const CUDA_TEXTURE_DESC,
        view: *const CUDA_RESOURCE_VIEW_DESC,
    ) partly "sRGB, seamless cube maps and resource views are refused; anisotropy has no effect" {
        context::current()?;
        ensure(!object.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        supported(view.is_null(), "resource views of textures; make the texture of the mipmap level or array layers themselves")?;
        write(object, texture_object::create_texture(read(resource)?, read(description)?)?)
    }

    /// Ends a texture object.
    fn cuTexObjectDestroy(object: CUtexObject) {
        texture_object::destroy_texture(object)
    }

    /// Returns the resource that a texture object reads.
    fn cuTexObjectGetResourceDesc(resource: *mut CUDA_RESOURCE_DESC, object: CUtexObject) {
        write(resource, texture_object::resolve_texture(object)?.resource)
    }

    /// Returns the description of how a texture object reads its resource.
    fn cuTexObjectGetTextureDesc(description: *mut CUDA_TEXTURE_DESC, object: CUtexObject) {
        write(description, texture_object::resolve_texture(object)?.description)
    }

    /// Creates a surface object.
    fn cuSurfObjectCreate(object: *mut CUsurfObject, resource: *const CUDA_RESOURCE_DESC) {
        context::current()?;
        ensure(!object.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        write(object, texture_object::create_surface(read(resource)?)?)
    }

    /// Ends a surface object.
    fn cuSurfObjectDestroy(object: CUsurfObject) {
        texture_object::destroy_surface(object)
    }

    /// Returns the resource that a surface object accesses.
    fn cuSurfObjectGetResourceDesc(resource: *mut CUDA_RESOURCE_DESC, object: CUsurfObject) {
        write(resource, texture_object::resolve_surface(object)?.resource)
    }
}
