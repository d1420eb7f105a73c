// A matrix tile: C = A B for INT8 matrices, N x N results at a time, any number of terms up to
// 2^17 - 1 (32-bit accumulators do not overflow below that).
//
// Each beat of the input has column k of the N rows of A and row k of the N columns of B; the beat of
// the last k has `in_last`. The result leaves as N beats, one row of N 32-bit numbers each. While a
// result leaves, the next one accumulates: with N or more terms no cycle is lost.
module matmul_tile #(
    parameter int N = 8
) (
    input  logic              clk,
    input  logic              rst,
    input  logic              in_valid,
    output logic              in_ready,
    input  logic [N*8-1:0]    in_a,
    input  logic [N*8-1:0]    in_b,
    input  logic              in_last,
    output logic              out_valid,
    input  logic              out_ready,
    output logic [N*32-1:0]   out_row
);
    localparam int LOG_N = $clog2(N);

    logic beat_valid, beat_last;
    logic [N*8-1:0] beat_a, beat_b;
    logic advance, begins;

    stream_fifo #(.W(2*N*8+1), .LOG_DEPTH(2)) queue (
        .clk(clk), .rst(rst),
        .in_valid(in_valid), .in_ready(in_ready), .in_data({in_last, in_a, in_b}),
        .out_valid(beat_valid), .out_ready(advance), .out_data({beat_last, beat_a, beat_b})
    );

    // Row i of the array has element i of the column of A at all of its multipliers.
    logic [N*N*8-1:0] operands;
    genvar i;
    generate
        for (i = 0; i < N; i++) begin : spread
            assign operands[i*N*8 +: N*8] = {N{beat_a[i*8 +: 8]}};
        end
    endgenerate

    logic [N*N*32-1:0] acc;
    logic [N*(16+LOG_N)-1:0] unused_sum;
    mac_array #(.N(N), .A_W(8), .B_W(8), .ACC_W(32)) array (
        .clk(clk), .advance(advance), .accumulate(beat_valid), .first(begins),
        .a(operands), .b(beat_b), .acc(acc), .sum(unused_sum)
    );

    // The last beat of a tile has reached the accumulators when its mark has passed three stages. The
    // array waits if the rows of the tile before have not all left by then.
    logic [2:0] last_at;
    logic [LOG_N:0] rows_left;
    logic [N*N*32-1:0] leaving;
    logic moves, is_free;

    assign is_free = rows_left == 0 || (rows_left == 1 && out_ready);
    assign advance = !last_at[2] || is_free;
    assign moves = last_at[2] && is_free;
    assign out_valid = rows_left != 0;
    assign out_row = leaving[N*32-1:0];

    always_ff @(posedge clk) begin
        if (rst) begin
            last_at <= 0;
            rows_left <= 0;
            begins <= 1'b1;
        end else begin
            if (advance) begin
                last_at <= {last_at[1:0], beat_valid && beat_last};
                if (beat_valid) begins <= beat_last;
            end
            if (moves) rows_left <= (LOG_N+1)'(N);
            else if (out_valid && out_ready) rows_left <= rows_left - 1'b1;
        end
        if (moves) leaving <= acc;
        else if (out_valid && out_ready) leaving <= leaving >> (N*32);
    end
endmodule
