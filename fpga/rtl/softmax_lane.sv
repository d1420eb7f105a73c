// Online softmax of one row of queries.
//
// Scores are INT32 products; t = score * scale is their base-2 logarithm with 10 fraction bits. The
// running maximum m is a whole number, the ceiling of the largest t so far: so the factor of what was
// added up before is a power of two, and rescaling is an exact shift but for the bits that leave.
// Two passes over the N scores of a block:
//   maximum  t of each score into `scaled`, then m and `shift`, by how much m grew;
//   power    p = 2^(t - m) of each score into `weights`, and `total` = sum of all p.
// A masked score has no part in m, and its p is 0.
module softmax_lane #(
    parameter int N = 8,
    parameter int S_W = 22,
    parameter int L_W = 32,
    localparam int LOG_N = $clog2(N)
) (
    input  logic                     clk,
    // A new job: nothing has been seen.
    input  logic                     clear,
    // scale = mult / 2^right; `half` is 2^(right - 1), or 0.
    input  logic [15:0]              mult,
    input  logic [4:0]               right,
    input  logic [31:0]              half,
    // The pass of the maximum: a score each cycle.
    input  logic                     max_valid,
    input  logic                     max_masked,
    input  logic [LOG_N-1:0]         max_column,
    input  logic signed [S_W-1:0]    score,
    output logic                     max_done,
    // The pass of the power.
    input  logic                     pow_valid,
    input  logic [LOG_N-1:0]         pow_column,
    output logic                     pow_done,
    // 2^0 is 32768. `shift` belongs to `weights`: what came before them shrinks by it.
    output logic [N*16-1:0]          weights,
    output logic [5:0]               shift,
    output logic [L_W-1:0]           total
);
    localparam int T_W = 22;      // t: 12 bits and 10 fraction bits
    localparam int M_W = 13;
    localparam int X_W = S_W + 18;
    localparam logic [LOG_N-1:0] LAST = LOG_N'(N - 1);
    localparam logic signed [X_W-1:0] T_MAX = (1 << (T_W - 1)) - 1;
    localparam logic signed [X_W-1:0] T_MIN = -(1 << (T_W - 1));

    // --- the pass of the maximum -----------------------------------------------------------------
    logic [6:1] is_max, is_masked;
    logic [LOG_N-1:0] max_at [1:6];
    logic signed [S_W-1:0] score_1;
    // Low nine bits and the rest are multiplied apart: each fits one 18-bit multiplier.
    logic signed [S_W+7:0] high_2;
    logic signed [26:0] low_2;
    logic signed [X_W-1:0] sum_3, shifted_4, shifted_5;
    logic signed [T_W-1:0] t_6;

    always_ff @(posedge clk) begin
        is_max <= {is_max[5:1], max_valid && !clear};
        is_masked <= {is_masked[5:1], max_masked};
        max_at[1] <= max_column;
        for (int stage = 2; stage <= 6; stage = stage + 1) max_at[stage] <= max_at[stage-1];
        score_1 <= score;
        high_2 <= $signed(score_1[S_W-1:9]) * $signed({1'b0, mult});
        low_2 <= $signed({1'b0, score_1[8:0]}) * $signed({1'b0, mult});
        sum_3 <= (X_W'(high_2) <<< 9) + X_W'(low_2) + $signed(X_W'(half));
        shifted_4 <= sum_3 >>> {right[4:3], 3'b000};
        shifted_5 <= shifted_4 >>> right[2:0];
        if (shifted_5 > T_MAX) t_6 <= T_MAX[T_W-1:0];
        else if (shifted_5 < T_MIN) t_6 <= T_MIN[T_W-1:0];
        else t_6 <= shifted_5[T_W-1:0];
    end

    // A bit that says "not masked", then t.
    logic [T_W:0] scaled [0:N-1];
    logic signed [T_W-1:0] largest;
    logic any, has_largest_7, has_ceiling_8, has_growth_9;
    logic signed [M_W-1:0] ceiling_8, m;
    logic signed [M_W:0] growth_9;
    logic has_m;
    logic [5:0] new_shift;

    always_ff @(posedge clk) begin
        if (is_max[6]) scaled[max_at[6]] <= {!is_masked[6], t_6};
        if (is_max[6] && max_at[6] == 0) any <= !is_masked[6];
        else if (is_max[6] && !is_masked[6]) any <= 1'b1;
        if (is_max[6] && !is_masked[6] && (max_at[6] == 0 || !any || t_6 > largest)) largest <= t_6;
    end

    always_ff @(posedge clk) begin
        has_largest_7 <= is_max[6] && max_at[6] == LAST && !clear;
        // The ceiling: one more where there is a fraction.
        ceiling_8 <= $signed({largest[T_W-1], largest[T_W-1:10]}) + $signed({{(M_W-1){1'b0}}, |largest[9:0]});
        has_ceiling_8 <= has_largest_7 && !clear;
        growth_9 <= (M_W+1)'(ceiling_8) - (M_W+1)'(m);
        has_growth_9 <= has_ceiling_8 && !clear;
        max_done <= has_growth_9 && !clear;
        if (clear) has_m <= 1'b0;
        else if (has_growth_9) begin
            new_shift <= 6'd0;
            if (any && !has_m) begin
                m <= ceiling_8;
                has_m <= 1'b1;
            end else if (any && growth_9 > 0) begin
                m <= ceiling_8;
                new_shift <= growth_9 > 63 ? 6'd63 : growth_9[5:0];
            end
        end
    end

    // --- the pass of the power -------------------------------------------------------------------
    logic [6:1] is_pow;
    logic [5:1] is_seen;
    logic [LOG_N-1:0] pow_at [1:6];
    logic signed [T_W-1:0] t_1;
    logic [T_W+1:0] below_2;    // m - t, not negative
    logic [4:0] whole_3, whole_4;
    logic [9:0] fraction_2;
    logic [15:0] power_3, power_4, p_6;
    logic [16:0] doubled_5;
    logic [T_W+1-10:0] ceiling_2;

    assign fraction_2 = -below_2[9:0];
    assign ceiling_2 = below_2[T_W+1:10] + (T_W+2-10)'(|below_2[9:0]);

    exp2_rom rom (.clk(clk), .fraction(fraction_2), .power(power_3));

    always_ff @(posedge clk) begin
        is_pow <= {is_pow[5:1], pow_valid && !clear};
        pow_at[1] <= pow_column;
        for (int stage = 2; stage <= 6; stage = stage + 1) pow_at[stage] <= pow_at[stage-1];
        {is_seen[1], t_1} <= scaled[pow_column];
        is_seen[5:2] <= is_seen[4:1];
        below_2 <= ((T_W+2)'(m) <<< 10) - (T_W+2)'(t_1);
        whole_3 <= ceiling_2 > 17 ? 5'd17 : ceiling_2[4:0];
        whole_4 <= whole_3;
        power_4 <= power_3;
        // One bit more than p has, to round.
        doubled_5 <= {power_4, 1'b0} >> whole_4;
        p_6 <= is_seen[5] ? doubled_5[16:1] + 16'(doubled_5[0]) : 16'd0;
    end

    genvar j;
    generate
        for (j = 0; j < N; j++) begin : weight
            logic [15:0] value;
            always_ff @(posedge clk) if (is_pow[6] && pow_at[6] == j) value <= p_6;
            assign weights[j*16 +: 16] = value;
        end
    endgenerate

    always_ff @(posedge clk) begin
        pow_done <= is_pow[6] && pow_at[6] == LAST && !clear;
        if (is_pow[6] && pow_at[6] == LAST) shift <= new_shift;
        // The shift comes before the first p does.
        if (clear) total <= 0;
        else if (pow_valid && pow_column == 0) total <= total >> {new_shift[5:3], 3'b000};
        else if (is_pow[1] && pow_at[1] == 0) total <= total >> new_shift[2:0];
        else if (is_pow[6]) total <= total + L_W'(p_6);
    end

`ifdef FORMAL
    // The table gives no weight above 2^15 (tests of the model try all of them), and a job has at most
    // MOST_KEYS keys: the total does not overflow.
    parameter int MOST_KEYS = 1 << (L_W - 16);
    logic [L_W-1:0] keys;
    logic is_cleared;
    initial is_cleared = 1'b0;
    always_ff @(posedge clk) begin
        assume (p_6 <= 16'd32768);
        is_cleared <= is_cleared || clear;
        if (clear) keys <= 0;
        else if (is_pow[6]) begin
            assume (keys < MOST_KEYS);
            keys <= keys + 1'b1;
        end
        if (is_cleared) begin
            assert (keys <= MOST_KEYS);
            assert (total <= keys << 15);
        end
    end
`endif
endmodule
