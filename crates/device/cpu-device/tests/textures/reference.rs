//! The formulas of the programming guide's appendix on texture fetching.

use apex_random::Random;
use cuda_abi::types::*;

/// An image of the reference: channels as the kernel sees them, before filtering.
pub struct Reference {
    pub extent: [i64; 3],
    pub channels: usize,
    pub values: Vec<f32>,
    pub mode: CUaddress_mode,
    pub normalized: bool,
    /// The value around the image.
    pub border: [f32; 4],
}

impl Reference {
    fn inside(&self, index: i64, extent: i64) -> Option<i64> {
        match self.mode {
            CU_TR_ADDRESS_MODE_BORDER => (0..extent).contains(&index).then_some(index),
            CU_TR_ADDRESS_MODE_WRAP if self.normalized => Some((index % extent + extent) % extent),
            CU_TR_ADDRESS_MODE_MIRROR if self.normalized => {
                // Folds the number line at both edges until the index is inside.
                let mut index = index;
                while !(0..extent).contains(&index) {
                    index = if index < 0 { -1 - index } else { 2 * extent - 1 - index };
                }
                Some(index)
            }
            _ => Some(index.max(0).min(extent - 1)),
        }
    }

    fn texel(&self, at: [i64; 3]) -> [f32; 4] {
        let mut inside = [0; 3];
        for axis in 0..3 {
            match self.inside(at[axis], self.extent[axis]) {
                Some(index) => inside[axis] = index,
                None => return self.border,
            }
        }
        let texel = (inside[2] * self.extent[1] + inside[1]) * self.extent[0] + inside[0];
        let mut values = [0.0; 4];
        values[..self.channels]
            .copy_from_slice(&self.values[texel as usize * self.channels..][..self.channels]);
        values
    }

    /// In texels.
    fn scale(&self, coordinates: [f32; 3]) -> [f64; 3] {
        let factor = |axis: usize| if self.normalized { self.extent[axis] as f64 } else { 1.0 };
        [0, 1, 2].map(|axis| f64::from(coordinates[axis]) * factor(axis))
    }

    pub fn nearest(&self, coordinates: [f32; 3]) -> [f32; 4] {
        self.texel(self.scale(coordinates).map(|at| at.floor() as i64))
    }

    /// The guide's sum: weights alpha, beta and gamma of 8 fractional bits.
    pub fn linear(&self, coordinates: [f32; 3], dimensions: usize) -> [f32; 4] {
        let base = self.scale(coordinates).map(|at| at - 0.5);
        let index = base.map(|at| at.floor() as i64);
        let [a, b, c] = base.map(|at| ((at - at.floor()) * 256.0 + 0.5).floor() / 256.0);
        let (b, c) = (if dimensions > 1 { b } else { 0.0 }, if dimensions > 2 { c } else { 0.0 });
        let (j, k) = (if dimensions > 1 { index[1] } else { 0 }, if dimensions > 2 { index[2] } else { 0 });
        let i = index[0];
        let mut sum = [0.0f64; 4];
        for (dz, wz) in [(0, 1.0 - c), (1, c)] {
            for (dy, wy) in [(0, 1.0 - b), (1, b)] {
                for (dx, wx) in [(0, 1.0 - a), (1, a)] {
                    if wx * wy * wz > 0.0 {
                        let texel = self.texel([i + dx, j + dy, k + dz]);
                        sum.iter_mut()
                            .zip(texel)
                            .for_each(|(sum, value)| *sum += wx * wy * wz * f64::from(value));
                    }
                }
            }
        }
        sum.map(|sum| sum as f32)
    }
}

/// The border's colour `[0.5, -2.0, 0.25, 8.0]` in the channels and the format of an image, as an
/// H200 reads it.
pub fn border(format: CUarray_format, channels: usize) -> [f32; 4] {
    let mut colour = match format {
        CU_AD_FORMAT_UNSIGNED_INT8 => [128.0 / 255.0, 0.0, 64.0 / 255.0, 1.0],
        CU_AD_FORMAT_SIGNED_INT16 => [16384.0 / 32767.0, -1.0, 8192.0 / 32767.0, 1.0],
        _ => [0.5, -2.0, 0.25, 8.0],
    };
    colour[channels..].fill(0.0);
    colour
}

/// Random texels of a format: their bytes, and what the kernel sees of them.
pub fn texels(random: &mut Random, format: CUarray_format, count: usize) -> (Vec<u8>, Vec<f32>) {
    let mut bytes = Vec::new();
    let values = (0..count).map(|_| {
        let bits = random.bits();
        match format {
            CU_AD_FORMAT_UNSIGNED_INT8 => {
                bytes.push(bits as u8);
                f32::from(bits as u8) / 255.0
            }
            CU_AD_FORMAT_SIGNED_INT16 => {
                bytes.extend((bits as i16).to_le_bytes());
                (f32::from(bits as i16) / 32767.0).max(-1.0)
            }
            CU_AD_FORMAT_HALF => {
                // A half with 10 bits of fraction, between 1 and 2.
                bytes.extend((0x3c00 | bits as u16 & 0x3ff).to_le_bytes());
                1.0 + (bits & 0x3ff) as f32 / 1024.0
            }
            _ => {
                let value = (bits as i32 >> 12) as f32 / 64.0;
                bytes.extend(value.to_le_bytes());
                value
            }
        }
    });
    let values = values.collect();
    (bytes, values)
}
