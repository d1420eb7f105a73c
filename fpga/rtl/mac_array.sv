// N x N multipliers that both products of attention and the matrix tile share.
//
// Multiplier (i, j) multiplies a[i][j] by b[j]. Its product goes two ways:
// - into the accumulator (i, j), where `accumulate` is set: output-stationary products;
// - into the sum of row i over all j, a tree of adders with a register after each level.
//
// Timing: a beat at cycle 0 has its operands in registers at 1, its products at 2, its accumulators
// at 3, its row sums at 2 + log2(N). `advance` holds every stage.
module mac_array #(
    parameter int N = 8,
    parameter int A_W = 8,
    parameter int B_W = 8,
    parameter int ACC_W = 32,
    localparam int LOG_N = $clog2(N),
    localparam int PROD_W = A_W + B_W,
    localparam int SUM_W = PROD_W + LOG_N
) (
    input  logic                   clk,
    input  logic                   advance,
    input  logic                   accumulate,
    input  logic                   first,
    input  logic [N*N*A_W-1:0]     a,
    input  logic [N*B_W-1:0]       b,
    output logic [N*N*ACC_W-1:0]   acc,
    output logic [N*SUM_W-1:0]     sum
);
    logic [1:0] accumulates, begins;

    always_ff @(posedge clk) if (advance) begin
        accumulates <= {accumulates[0], accumulate};
        begins <= {begins[0], first};
    end

    genvar i, j, k;

`ifdef FORMAL
    // Any numbers of 8 bits, and a new sum after at most MOST_TERMS terms: no accumulator overflows.
    parameter int MOST_TERMS = 64;
    logic [17:0] terms;
    logic has_terms;
    initial has_terms = 1'b0;
    always_ff @(posedge clk) if (advance && accumulates[1]) begin
        assume (begins[1] || terms < MOST_TERMS);
        terms <= begins[1] ? 18'd1 : terms + 1'b1;
        has_terms <= has_terms || begins[1];
    end
`endif

    generate
        for (i = 0; i < N; i++) begin : row
            // Node k of a level is the sum of nodes 2k and 2k + 1 of the level before.
            logic [2*N*SUM_W-1:SUM_W] tree;

            for (j = 0; j < N; j++) begin : column
                logic signed [A_W-1:0] left;
                logic signed [B_W-1:0] right;
                logic signed [PROD_W-1:0] product;
                logic signed [ACC_W-1:0] total;

                always_ff @(posedge clk) if (advance) begin
                    left <= a[(i*N+j)*A_W +: A_W];
                    right <= b[j*B_W +: B_W];
                    product <= left * right;
                    if (accumulates[1]) begin
                        total <= (begins[1] ? {ACC_W{1'b0}} : total) + ACC_W'(product);
                    end
                end
`ifdef FORMAL
                logic signed [A_W-1:0] left_in;
                assign left_in = a[(i*N+j)*A_W +: A_W];
                always_ff @(posedge clk) begin
                    assume (left_in >= -128 && left_in <= 127);
                    if (has_terms) begin
                        assert (33'(total) <= $signed({1'b0, terms, 14'd0}));
                        assert (33'(total) >= -$signed({1'b0, terms, 14'd0}));
                    end
                end
                // What the pipeline holds before its first beat counts for nothing, but is in range.
                initial begin left = 0; right = 0; product = 0; end
                always_ff @(posedge clk) begin
                    assert (left >= -128 && left <= 127);
                    assert (product <= 16384 && product >= -16256);
                end
`endif
                assign acc[(i*N+j)*ACC_W +: ACC_W] = total;
                assign tree[(N+j)*SUM_W +: SUM_W] = {{LOG_N{product[PROD_W-1]}}, product};
            end

            for (k = 1; k < N; k++) begin : node
                logic [SUM_W-1:0] value;
                always_ff @(posedge clk) if (advance) begin
                    value <= tree[2*k*SUM_W +: SUM_W] + tree[(2*k+1)*SUM_W +: SUM_W];
                end
                assign tree[k*SUM_W +: SUM_W] = value;
            end
            assign sum[i*SUM_W +: SUM_W] = tree[SUM_W +: SUM_W];
        end
    endgenerate
endmodule
