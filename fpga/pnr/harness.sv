// What place and route needs around a tile: a package has fewer pins than a tile has ports. Every
// input comes from a register of a chain with one pin at its start; every output goes into a register,
// and the registers' parity leaves by one pin a few levels later. So all paths of the tile lie between
// registers, as in a design that uses it, and nothing is optimized away.
module harness #(
    parameter int INPUTS = 16,
    parameter int OUTPUTS = 16
) (
    input  logic               clk,
    input  logic               pin_in,
    output logic               pin_out,
    output logic [INPUTS-1:0]  to_tile,
    input  logic [OUTPUTS-1:0] from_tile
);
    localparam int GROUPS = (OUTPUTS + 7) / 8;
    logic [INPUTS-1:0] chain;
    logic [8*GROUPS-1:0] taken;
    logic [GROUPS-1:0] parity, folded;
    logic first_in;

    assign to_tile = chain;
    assign pin_out = folded[0];
    always_ff @(posedge clk) begin
        first_in <= pin_in;
        chain <= {chain[INPUTS-2:0], first_in};
        taken <= (8*GROUPS)'(from_tile);
        for (int g = 0; g < GROUPS; g = g + 1) parity[g] <= ^taken[g*8 +: 8];
        folded <= parity ^ {1'b0, folded[GROUPS-1:1]};
    end
endmodule

module attention_harness #(
    parameter int N = 8,
    parameter int DIM = 64
) (
    input  logic clk,
    input  logic pin_in,
    output logic pin_out
);
    localparam int INPUTS = 1 + 1 + 18 + 16 + 5 + 1 + 8 * N + N + 1 + 1;
    localparam int OUTPUTS = 2 + 16 * N;
    logic [INPUTS-1:0] in;
    logic [OUTPUTS-1:0] out;
    harness #(.INPUTS(INPUTS), .OUTPUTS(OUTPUTS)) around (
        .clk(clk), .pin_in(pin_in), .pin_out(pin_out), .to_tile(in), .from_tile(out)
    );
    attention_tile #(.N(N), .DIM(DIM)) tile (
        .clk(clk), .rst(in[0]), .causal(in[1]), .position(in[19:2]), .mult(in[35:20]), .right(in[40:36]),
        .in_valid(in[41]), .in_last(in[42]), .out_ready(in[43]), .in_data(in[44 +: 8*N]),
        .in_mask(in[44+8*N +: N]), .in_ready(out[0]), .out_valid(out[1]), .out_data(out[2 +: 16*N])
    );
endmodule

module matmul_harness #(
    parameter int N = 8
) (
    input  logic clk,
    input  logic pin_in,
    output logic pin_out
);
    localparam int INPUTS = 4 + 16 * N;
    localparam int OUTPUTS = 2 + 32 * N;
    logic [INPUTS-1:0] in;
    logic [OUTPUTS-1:0] out;
    harness #(.INPUTS(INPUTS), .OUTPUTS(OUTPUTS)) around (
        .clk(clk), .pin_in(pin_in), .pin_out(pin_out), .to_tile(in), .from_tile(out)
    );
    matmul_tile #(.N(N)) tile (
        .clk(clk), .rst(in[0]), .in_valid(in[1]), .in_last(in[2]), .out_ready(in[3]),
        .in_a(in[4 +: 8*N]), .in_b(in[4+8*N +: 8*N]),
        .in_ready(out[0]), .out_valid(out[1]), .out_row(out[2 +: 32*N])
    );
endmodule
