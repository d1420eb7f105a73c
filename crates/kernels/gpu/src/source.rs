//! CUDA C++ that is compiled at run time, and everything that the outcome depends on.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// CUDA C++ with the options to compile it.
///
/// ```
/// let source = apex_gpu::Source::new(r#"
///     extern "C" __global__ void scale(float* x, float by, unsigned n) {
///         unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
///         if (i < n) x[i] *= by;
///     }
/// "#)
/// .name("scale.cu")
/// .option("--use_fast_math");
/// # let _ = source;
/// ```
#[derive(Clone, Debug)]
pub struct Source {
    pub(crate) code: String,
    pub(crate) name: String,
    pub(crate) options: Vec<String>,
    pub(crate) includes: Vec<PathBuf>,
    pub(crate) instances: Vec<String>,
    pub(crate) architecture: Option<String>,
    pub(crate) cache: CacheFolder,
}

/// The folder in which compiled code is kept between runs.
///
/// ```
/// # if apex_gpu::Module::can_compile().is_err() { return Ok(()) } // no NVRTC here
/// # let device = apex_gpu::Device::open(0)?;
/// use apex_gpu::{CacheFolder, Cached, Source};
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path().to_path_buf();
/// let source = Source::new("extern \"C\" __global__ void nothing() {}").cache(CacheFolder::In(folder));
/// assert_eq!(*device.compile(&source)?.cached(), Cached::Stored);
/// assert_eq!(*device.compile(&source)?.cached(), Cached::Hit);
/// # apex_gpu::Result::Ok(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CacheFolder {
    /// `APEX_CACHE_DIR` if it is set (`off` keeps nothing), else `apex/kernels` in `XDG_CACHE_HOME`
    /// or `~/.cache`.
    #[default]
    Default,
    /// This folder; it is made if need be.
    In(PathBuf),
    /// Nowhere.
    Off,
}

impl Source {
    /// The text of a `.cu` file. Kernels that are declared `extern "C"` go by their names; for
    /// templates and namespaces see [`Source::instance`].
    ///
    /// ```
    /// # if apex_gpu::Module::can_compile().is_err() { return Ok(()) } // no NVRTC here
    /// # let device = apex_gpu::Device::open(0)?;
    /// let source = apex_gpu::Source::new("extern \"C\" __global__ void one(int* to) { *to = 1; }");
    /// let one = device.compile(&source)?.kernel("one")?;
    /// let mut cell = device.zeros::<i32>(1)?;
    /// // SAFETY: one thread, one element.
    /// unsafe { one.launch([1; 3], [1; 3]).arg(&mut cell).launch()? };
    /// assert_eq!(cell.to_vec()?, [1]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn new(code: impl Into<String>) -> Source {
        Source {
            code: code.into(),
            name: "kernel.cu".to_owned(),
            options: Vec::new(),
            includes: Vec::new(),
            instances: Vec::new(),
            architecture: None,
            cache: CacheFolder::Default,
        }
    }

    /// The name that messages of the compiler show.
    ///
    /// ```
    /// # if apex_gpu::Module::can_compile().is_err() { return Ok(()) } // no NVRTC here
    /// # let device = apex_gpu::Device::open(0)?;
    /// let wrong = apex_gpu::Source::new("__global__ void k() { undeclared = 1; }").name("wrong.cu");
    /// let error = device.compile(&wrong).unwrap_err();
    /// assert!(error.to_string().contains("wrong.cu(1)"));
    /// # apex_gpu::Result::Ok(())
    /// ```
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Source {
        self.name = name.into();
        self
    }

    /// An option of NVRTC, such as `--use_fast_math` or `-DN=4`.
    ///
    /// ```
    /// # if apex_gpu::Module::can_compile().is_err() { return Ok(()) } // no NVRTC here
    /// # let device = apex_gpu::Device::open(0)?;
    /// let source = apex_gpu::Source::new("extern \"C\" __global__ void put(int* to) { *to = N; }").option("-DN=4");
    /// let mut cell = device.zeros::<i32>(1)?;
    /// // SAFETY: one thread, one element.
    /// unsafe { device.compile(&source)?.kernel("put")?.launch([1; 3], [1; 3]).arg(&mut cell).launch()? };
    /// assert_eq!(cell.to_vec()?, [4]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    #[must_use]
    pub fn option(mut self, option: impl Into<String>) -> Source {
        self.options.push(option.into());
        self
    }

    /// A folder in which `#include` looks. The toolkit's own headers are found without.
    ///
    /// ```
    /// # if apex_gpu::Module::can_compile().is_err() { return Ok(()) } // no NVRTC here
    /// # let device = apex_gpu::Device::open(0)?;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// std::fs::write(folder.join("sizes.h"), "#define TILE 16\n").unwrap();
    /// let code = "#include \"sizes.h\"\n extern \"C\" __global__ void k(float (*tiles)[TILE]) {}";
    /// let module = device.compile(&apex_gpu::Source::new(code).include(folder))?;
    /// assert_eq!(module.kernel("k")?.parameters(), [8]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    #[must_use]
    pub fn include(mut self, folder: impl Into<PathBuf>) -> Source {
        self.includes.push(folder.into());
        self
    }

    /// Instantiates a template, or names a kernel in a namespace: `sum<float, 256>`.
    /// [`Module::kernel`](crate::Module::kernel) takes the same text.
    ///
    /// ```
    /// # if apex_gpu::Module::can_compile().is_err() { return Ok(()) } // no NVRTC here
    /// # let device = apex_gpu::Device::open(0)?;
    /// let code = "namespace ours { template <int N> __global__ void put(int* to) { *to = N; } }";
    /// let module = device.compile(&apex_gpu::Source::new(code).instance("ours::put<5>"))?;
    /// let mut cell = device.zeros::<i32>(1)?;
    /// // SAFETY: one thread, one element.
    /// unsafe { module.kernel("ours::put<5>")?.launch([1; 3], [1; 3]).arg(&mut cell).launch()? };
    /// assert_eq!(cell.to_vec()?, [5]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    #[must_use]
    pub fn instance(mut self, expression: impl Into<String>) -> Source {
        self.instances.push(expression.into());
        self
    }

    /// Compiles for this architecture, such as `sm_90a`, rather than for the device's.
    ///
    /// ```
    /// # if apex_gpu::Module::can_compile().is_err() { return Ok(()) } // no NVRTC here
    /// # let device = apex_gpu::Device::open(0)?;
    /// let source = apex_gpu::Source::new("extern \"C\" __global__ void k() {}");
    /// let source = match device.limits().compute_capability {
    ///     (9, 0) => source.architecture("sm_90a"), // with what only this architecture has
    ///     _ => source,
    /// };
    /// device.compile(&source)?.kernel("k")?;
    /// # apex_gpu::Result::Ok(())
    /// ```
    #[must_use]
    pub fn architecture(mut self, architecture: impl Into<String>) -> Source {
        self.architecture = Some(architecture.into());
        self
    }

    /// Keeps compiled code there.
    ///
    /// ```
    /// # if apex_gpu::Module::can_compile().is_err() { return Ok(()) } // no NVRTC here
    /// # let device = apex_gpu::Device::open(0)?;
    /// use apex_gpu::{CacheFolder, Cached, Source};
    /// let source = Source::new("extern \"C\" __global__ void k() {}").cache(CacheFolder::Off);
    /// assert_eq!(*device.compile(&source)?.cached(), Cached::Off);
    /// # apex_gpu::Result::Ok(())
    /// ```
    #[must_use]
    pub fn cache(mut self, folder: CacheFolder) -> Source {
        self.cache = folder;
        self
    }

    /// All that the outcome depends on, as bytes: what the compile cache compares.
    ///
    /// Headers are followed as far as their names stand in the text and lie in folders that were
    /// given with [`Source::include`]; those of the toolkit go with the compiler's version.
    pub(crate) fn fingerprint(&self, architecture: &str, compiler: (u32, u32)) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut put = |field: &[u8]| {
            bytes.extend((field.len() as u64).to_le_bytes());
            bytes.extend(field);
        };
        put(architecture.as_bytes());
        put(format!("{}.{}", compiler.0, compiler.1).as_bytes());
        put(self.name.as_bytes());
        put(self.code.as_bytes());
        for list in [&self.options, &self.instances] {
            put(&(list.len() as u64).to_le_bytes());
            list.iter().for_each(|item| put(item.as_bytes()));
        }
        for header in self.headers() {
            put(header.as_os_str().as_encoded_bytes());
            put(&fs::read(&header).unwrap_or_default());
        }
        bytes
    }

    /// The headers that the code includes from the folders of [`Source::include`], and those that
    /// they include.
    fn headers(&self) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        let mut open = included(&self.code, None, &self.includes);
        while let Some(header) = open.pop() {
            if let Ok(text) = fs::read_to_string(&header)
                && found.insert(header.clone())
            {
                open.extend(included(&text, header.parent(), &self.includes));
            }
        }
        found
    }
}

/// The files that `text` includes, as far as they lie in `beside` or one of `folders`.
fn included(text: &str, beside: Option<&Path>, folders: &[PathBuf]) -> Vec<PathBuf> {
    let name = |line: &str| {
        let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim_start();
        let end = match rest.chars().next()? {
            '"' => '"',
            '<' => '>',
            _ => return None,
        };
        Some(rest[1..].split(end).next()?.to_owned())
    };
    let resolve = |name: String| {
        let folders = beside.into_iter().chain(folders.iter().map(PathBuf::as_path));
        folders.map(|folder| folder.join(&name)).find(|path| path.is_file())
    };
    text.lines().filter_map(name).filter_map(resolve).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_matters_changes_the_fingerprint() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("inner.h"), "#define N 3\n").unwrap();
        fs::write(folder.path().join("outer.h"), "  # include \"inner.h\"\n").unwrap();
        let source = Source::new("#include <outer.h>\n__global__ void k() {}").include(folder.path());
        let of = |source: &Source| source.fingerprint("sm_80", (13, 0));
        let first = of(&source);
        assert_eq!(first, of(&source.clone()));
        let others = [
            of(&source.clone().option("-DX")),
            of(&source.clone().instance("k")),
            of(&source.clone().name("other.cu")),
            of(&Source { code: format!("{} ", source.code), ..source.clone() }),
            source.fingerprint("sm_90", (13, 0)),
            source.fingerprint("sm_80", (13, 1)),
        ];
        assert!(others.iter().all(|other| *other != first));
        fs::write(folder.path().join("inner.h"), "#define N 4\n").unwrap();
        assert_ne!(of(&source), first, "a header of a header");
    }
}
