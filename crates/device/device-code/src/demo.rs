//! The kernels of the bundled programs. Every GPU since Turing executes them, with every driver
//! since CUDA 12.0, and their line information lets reports name the lines of the CUDA C++.

macro_rules! programs {
    ($($name:ident = $file:literal;)*) => { $(
        #[doc = concat!("The PTX of `demo/", $file, ".cu`.")]
        pub const $name: &str = include_str!(concat!("../generated/demo/", $file, ".ptx"));
    )* };
}

programs! {
    BAD = "bad";
    HISTOGRAM = "histogram";
    MATMUL = "matmul";
    PIPELINE = "pipeline";
    REDUCE = "reduce";
    SAXPY = "saxpy";
    VECTOR_ADD = "vector_add";
}
