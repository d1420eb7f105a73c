// A queue between two streams. `in_ready` and `out_valid` come from registers alone, so that a stall
// on one side does not reach the other side within a cycle.
//
// Invariants, proved by induction (FORMAL): words leave in the order in which they came, none is lost,
// duplicated or made up, and the number of words stays between 0 and DEPTH.
module stream_fifo #(
    parameter int W = 8,
    parameter int LOG_DEPTH = 2
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         in_valid,
    output logic         in_ready,
    input  logic [W-1:0] in_data,
    output logic         out_valid,
    input  logic         out_ready,
    output logic [W-1:0] out_data
);
    localparam int DEPTH = 1 << LOG_DEPTH;

    // One bit more than an index has, so that a full queue differs from an empty one.
    logic [LOG_DEPTH:0] written, read, count;
    logic [W-1:0] words [0:DEPTH-1];

    assign count = written - read;
    assign in_ready = !count[LOG_DEPTH];
    assign out_valid = count != 0;
    assign out_data = words[read[LOG_DEPTH-1:0]];

    always_ff @(posedge clk) begin
        if (in_valid && in_ready) words[written[LOG_DEPTH-1:0]] <= in_data;
        if (rst) begin
            written <= 0;
            read <= 0;
        end else begin
            if (in_valid && in_ready) written <= written + 1'b1;
            if (out_valid && out_ready) read <= read + 1'b1;
        end
    end

`ifdef FORMAL
    // Any one word: its number among all that came, modulo more than fit.
    localparam int F_W = LOG_DEPTH + 2;
    (* anyconst *) logic [F_W-1:0] watched;
    logic [F_W-1:0] came, left;
    logic is_inside, has_begun;
    logic [W-1:0] value;
    initial has_begun = 1'b0;

    always_ff @(posedge clk) begin
        has_begun <= 1'b1;
        if (!has_begun) assume (rst);
        if (rst) begin
            came <= 0;
            left <= 0;
            is_inside <= 1'b0;
        end else begin
            if (in_valid && in_ready) came <= came + 1'b1;
            if (out_valid && out_ready) left <= left + 1'b1;
            if (in_valid && in_ready && came == watched) begin
                is_inside <= 1'b1;
                value <= in_data;
            end else if (out_valid && out_ready && left == watched) is_inside <= 1'b0;
        end
        if (has_begun) begin
            assert (count <= DEPTH);
            assert (written == came[LOG_DEPTH:0] && read == left[LOG_DEPTH:0]);
            assert (F_W'(came - left) == F_W'(count));
            assert (is_inside == (F_W'(watched - left) < F_W'(count)));
            if (is_inside) assert (words[watched[LOG_DEPTH-1:0]] == value);
            if (out_valid && left == watched) assert (is_inside && out_data == value);
        end
    end
`endif
endmodule
