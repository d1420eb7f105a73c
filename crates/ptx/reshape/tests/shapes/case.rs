//! A kernel under test with its launches, and the text that all kernels have in common.

use cuda_launch::LaunchConfig;

/// Where the buffers of a launch lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// In allocations of their own.
    Separate,
    /// In one allocation.
    Pool,
    /// `a` and `b` are the same buffer.
    InPlace,
    /// `b` begins four bytes after `a`.
    Shifted,
}

/// A launch under test: grid, block, and the numbers that the kernel gets.
#[derive(Clone, Debug)]
pub struct Shot {
    pub config: LaunchConfig,
    pub n: u32,
    pub w: u32,
    pub h: u32,
    pub m: u64,
    pub layout: Layout,
}

impl Shot {
    /// A launch along x.
    pub fn line(blocks: u32, threads: u32, n: u32) -> Shot {
        let config = LaunchConfig::new(blocks, threads);
        Shot { config, n, w: 3, h: 2, m: n.into(), layout: Layout::Separate }
    }

    /// A launch along x and y, about a picture of `w` times `h`.
    pub fn plane(grid: (u32, u32, u32), block: (u32, u32, u32), w: u32, h: u32) -> Shot {
        let config = LaunchConfig::new(grid, block);
        Shot { config, n: w * h, w, h, m: w.into(), layout: Layout::Separate }
    }

    pub fn with_layout(self, layout: Layout) -> Shot {
        Shot { layout, ..self }
    }
}

/// What is known about a kernel by how it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// Its result is the same in every shape that keeps the threads.
    Qualifies,
    /// Its result depends on the shape, or two threads meet in memory: no shape may be allowed.
    Depends,
}

/// A kernel under test.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    pub source: String,
    pub shots: Vec<Shot>,
    pub truth: Truth,
}

impl Case {
    /// A kernel whose code is `body`, between the loads of its parameters and the label `$X`.
    pub fn new(name: impl Into<String>, body: &str, shots: Vec<Shot>, truth: Truth) -> Case {
        Case { name: name.into(), source: kernel(body), shots, truth }
    }
}

/// The text of a kernel `k(a, b, c, n, w, h, m)`.
pub fn kernel(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n\n\
         .visible .entry k(\n\t.param .u64 k_param_0,\n\t.param .u64 k_param_1,\n\t.param .u64 k_param_2,\n\
         \t.param .u32 k_param_3,\n\t.param .u32 k_param_4,\n\t.param .u32 k_param_5,\n\t.param .u64 k_param_6\n)\n{{\n\
         \t.reg .pred %p<20>;\n\t.reg .b16 %h<10>;\n\t.reg .b32 %r<90>;\n\t.reg .b32 %i, %j, %k, %n, %w, %hh;\n\
         \t.reg .f32 %f<30>;\n\t.reg .f64 %fd<10>;\n\t.reg .b64 %q<60>;\n\t.reg .b64 %l, %m, %a, %b, %c, %t;\n\
         \tld.param.u64 %q0, [k_param_0];\n\tld.param.u64 %q1, [k_param_1];\n\tld.param.u64 %q2, [k_param_2];\n\
         \tld.param.u32 %n, [k_param_3];\n\tld.param.u32 %w, [k_param_4];\n\tld.param.u32 %hh, [k_param_5];\n\
         \tld.param.u64 %m, [k_param_6];\n\tcvta.to.global.u64 %a, %q0;\n\tcvta.to.global.u64 %b, %q1;\n\
         \tcvta.to.global.u64 %c, %q2;\n{}\n$X:\n\tret;\n}}\n",
        indent(body)
    )
}

/// One statement on each line.
fn indent(body: &str) -> String {
    let lines = body.split(['\n', ';']).map(str::trim).filter(|line| !line.is_empty());
    let end = |line: &str| if line.ends_with(':') || line == "}" { "" } else { ";" };
    lines.map(|line| format!("\t{line}{}\n", end(line))).collect()
}
