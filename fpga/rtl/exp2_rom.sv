// The table of the exponential: entry f is 2^(f / 1024) with 15 fraction bits, rounded to nearest.
// `fpga-model table` writes the file. One port of a block memory of ECP5 holds it exactly.
module exp2_rom (
    input  logic        clk,
    input  logic [9:0]  fraction,
    output logic [15:0] power
);
    logic [15:0] entries [0:1023];
    initial $readmemh("exp2.hex", entries);

    always_ff @(posedge clk) power <= entries[fraction];
endmodule
