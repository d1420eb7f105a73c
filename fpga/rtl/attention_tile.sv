// Attention of N rows of queries over any number of blocks of N keys, with one array of N x N
// multipliers for both products. Nothing is kept of a block of scores but its weights: the softmax is
// online (softmax_lane).
//
// A job is a stream of beats of N INT8 numbers. Beat d of a part has element d of N rows:
//     Q, K(0), K(1), V(0), K(2), V(1), ..., K(B-1), V(B-2), V(B-1)
// Each part has DIM beats. `in_last` on the last beat of a part of keys says that it is K(B-1).
// `in_mask` on that beat says which of the N keys there are. The settings are read with the first
// beat of Q. The result leaves as DIM beats of N numbers with 8 fraction bits.
//
// Why this order: while the array multiplies the weights of block b - 1 by V(b-1), the lanes take the
// maximum of the scores of block b; while it makes the scores of block b + 1, they take the powers of
// block b. The array waits for the lanes at the first block and at the last one only.
module attention_tile #(
    parameter int N = 8,
    parameter int DIM = 64,
    // Most keys of a job are 2^LOG_KEYS: no total overflows.
    parameter int LOG_KEYS = 16
) (
    input  logic                clk,
    input  logic                rst,
    // settings of the job
    input  logic                causal,
    input  logic signed [LOG_KEYS+1:0] position,  // of the first row of queries among the keys
    input  logic [15:0]         mult,             // base-2 logarithm of a weight, with 10 fraction bits:
    input  logic [4:0]          right,            //   score * mult / 2^right
    // stream of operands
    input  logic                in_valid,
    output logic                in_ready,
    input  logic [N*8-1:0]      in_data,
    input  logic [N-1:0]        in_mask,
    input  logic                in_last,
    // stream of results
    output logic                out_valid,
    input  logic                out_ready,
    output logic [N*16-1:0]     out_data
);
    localparam int LOG_N = $clog2(N);
    localparam int LOG_D = $clog2(DIM);
    localparam int S_W = 16 + LOG_D;
    localparam int L_W = LOG_KEYS + 16;
    localparam int O_W = L_W + 8;
    localparam int SUM_W = 17 + 8 + LOG_N;
    localparam int P_W = LOG_KEYS + 2;
    // Cycle after its beat in which an element's row sums are there.
    localparam int SUMS_AT = 4 + LOG_N;

    genvar i, j;
    // --- the order of beats ----------------------------------------------------------------------
    localparam logic [1:0] QUERIES = 0, KEYS = 1, VALUES = 2, RESULTS = 3;

    logic beat_valid, beat_ready, beat, beat_last;
    logic [N*8-1:0] beat_data;
    logic [N-1:0] beat_mask;

    stream_fifo #(.W(9*N+1), .LOG_DEPTH(2)) in_queue (
        .clk(clk), .rst(rst),
        .in_valid(in_valid), .in_ready(in_ready), .in_data({in_last, in_mask, in_data}),
        .out_valid(beat_valid), .out_ready(beat_ready), .out_data({beat_last, beat_mask, beat_data})
    );

    logic [1:0] part;
    logic [LOG_D-1:0] element;
    logic [1:0] ahead;               // blocks of which there are scores, and values are still to come
    logic ends_part, is_fresh, has_last, scores_unread, weights_ready;
    logic scores_taken, weights_made, results_end, clear;

    // Keys wait until the scores before have been read, values until there are weights.
    assign beat_ready = part == QUERIES || (part == KEYS && !scores_unread)
        || (part == VALUES && weights_ready);
    assign beat = beat_valid && beat_ready;
    assign ends_part = beat && element == LOG_D'(DIM - 1);
    assign clear = rst || part == QUERIES;

    always_ff @(posedge clk) begin
        if (rst) begin
            part <= QUERIES;
            element <= 0;
        end else begin
            if (beat) element <= ends_part ? {LOG_D{1'b0}} : element + 1'b1;
            if (results_end) part <= QUERIES;
            else if (ends_part) begin
                case (part)
                    QUERIES: part <= KEYS;
                    KEYS: part <= (ahead == 1 || beat_last) ? VALUES : KEYS;
                    default: part <= !has_last ? KEYS : (ahead == 2) ? VALUES : RESULTS;
                endcase
            end
        end
        if (clear) begin
            ahead <= 0;
            has_last <= 1'b0;
            is_fresh <= 1'b1;
            scores_unread <= 1'b0;
            weights_ready <= 1'b0;
        end else begin
            if (ends_part && part == KEYS) begin
                ahead <= ahead + 1'b1;
                has_last <= beat_last;
            end
            if (ends_part && part == VALUES) begin
                ahead <= ahead - 1'b1;
                is_fresh <= 1'b0;
            end
            if (scores_taken) scores_unread <= 1'b0;
            else if (ends_part && part == KEYS) scores_unread <= 1'b1;
            if (weights_made) weights_ready <= 1'b1;
            else if (ends_part && part == VALUES) weights_ready <= 1'b0;
        end
    end

    // --- settings --------------------------------------------------------------------------------
    logic is_causal;
    logic signed [P_W-1:0] first_position;
    logic [15:0] job_mult;
    logic [4:0] job_right;
    logic [31:0] job_half;

    always_ff @(posedge clk) begin
        if (beat && part == QUERIES && element == 0) begin
            is_causal <= causal;
            first_position <= position;
            job_mult <= mult;
            job_right <= right;
        end
        job_half <= (32'd1 << job_right) >> 1;
    end

    // --- operands and the array ------------------------------------------------------------------
    logic [N*8-1:0] queries [0:DIM-1];
    logic [N*8-1:0] query_1, query_2, data_1, data_2;
    logic [N*N*16-1:0] weights;
    logic [N*N*17-1:0] operands;
    logic [N*N*S_W-1:0] scores;
    logic [N*SUM_W-1:0] sums;
    logic [1:0] score_beats, first_elements, value_beats;

    always_ff @(posedge clk) begin
        if (beat && part == QUERIES) queries[element] <= beat_data;
        query_1 <= queries[element];
        query_2 <= query_1;
        data_1 <= beat_data;
        data_2 <= data_1;
        score_beats <= {score_beats[0], beat && part == KEYS};
        first_elements <= {first_elements[0], element == 0};
        value_beats <= {value_beats[0], part == VALUES};
    end

    generate
        for (i = 0; i < N; i++) begin : operand_row
            for (j = 0; j < N; j++) begin : operand
                assign operands[(i*N+j)*17 +: 17] = value_beats[1]
                    ? {1'b0, weights[(i*N+j)*16 +: 16]}
                    : {{9{query_2[i*8+7]}}, query_2[i*8 +: 8]};
            end
        end
    endgenerate

    mac_array #(.N(N), .A_W(17), .B_W(8), .ACC_W(S_W)) array (
        .clk(clk), .advance(1'b1), .accumulate(score_beats[1]), .first(first_elements[1]),
        .a(operands), .b(data_2), .acc(scores), .sum(sums)
    );

    // --- the passes of the lanes -----------------------------------------------------------------
    // A pass of the maximum changes what a pass of the power reads, so they take turns. A pass of the
    // power begins when the last values have been accepted; it writes its first weight seven cycles
    // later, when that beat has left the operands, and `shift` N cycles after that.
    logic [4:0] scores_end;
    logic scores_full, max_runs, max_busy, max_over, pow_starts, pow_runs, pow_busy;
    logic [LOG_N-1:0] max_column, pow_column;
    logic [LOG_KEYS:0] key;
    logic [N-1:0] block_mask, max_done, pow_done;
    logic [N*6-1:0] shifts;
    logic [N*L_W-1:0] totals;

    assign scores_taken = max_runs && max_column == LOG_N'(N - 1);
    assign pow_starts = max_over && !weights_ready && !pow_busy;
    assign weights_made = &pow_done;

    always_ff @(posedge clk) begin
        if (ends_part && part == KEYS) block_mask <= beat_mask;
        if (clear) begin
            scores_end <= 0;
            {scores_full, max_runs, max_busy, max_over, pow_runs, pow_busy} <= 0;
            {max_column, pow_column} <= 0;
            key <= 0;
        end else begin
            scores_end <= {scores_end[3:0], ends_part && part == KEYS};
            if (scores_full && !max_busy && !max_over && !pow_busy) begin
                scores_full <= 1'b0;
                max_runs <= 1'b1;
                max_busy <= 1'b1;
            end else if (scores_end[4]) scores_full <= 1'b1;
            if (scores_taken) max_runs <= 1'b0;
            if (max_runs) begin
                max_column <= max_column + 1'b1;
                key <= key + 1'b1;
            end
            if (&max_done) begin
                max_busy <= 1'b0;
                max_over <= 1'b1;
            end
            if (pow_starts) begin
                max_over <= 1'b0;
                pow_runs <= 1'b1;
                pow_busy <= 1'b1;
            end
            if (pow_runs) pow_column <= pow_column + 1'b1;
            if (pow_runs && pow_column == LOG_N'(N - 1)) pow_runs <= 1'b0;
            if (weights_made) pow_busy <= 1'b0;
        end
    end

    // --- results: what the values give, added up -------------------------------------------------
    // Element d of all rows is read, shrinks as the maxima grew, and is written back with its sum.
    logic [SUMS_AT+1:1] is_value, is_zero;
    logic [LOG_D-1:0] value_at [1:SUMS_AT+1];
    logic [N*O_W-1:0] held [0:DIM-1];
    logic [N*O_W-1:0] held_1, held_2, renewed;
    logic [LOG_D-1:0] read_at, result;
    logic results_run, reads_result;

    assign read_at = results_run ? result : value_at[LOG_N];

    always_ff @(posedge clk) begin
        is_value <= rst ? {(SUMS_AT+1){1'b0}} : {is_value[SUMS_AT:1], beat && part == VALUES};
        is_zero <= {is_zero[SUMS_AT:1], is_fresh};
        value_at[1] <= element;
        for (int at = 2; at <= SUMS_AT + 1; at = at + 1) value_at[at] <= value_at[at-1];
        held_1 <= held[read_at];
        held_2 <= held_1;
        if (is_value[SUMS_AT+1]) held[value_at[SUMS_AT+1]] <= renewed;
    end

    // --- the rows --------------------------------------------------------------------------------
    logic [N-1:0] divided;
    logic [N*16-1:0] results;
    logic starts_division;

    // The weights of the last block complete the totals.
    assign starts_division = weights_made && has_last && ahead == 1;

    generate
        for (i = 0; i < N; i++) begin : row
            logic masked;
            logic [S_W-1:0] score;
            logic signed [O_W-1:0] coarse_3, shrunk_4, fresh_5;
            logic [5:0] shift;

            assign masked = !block_mask[max_column]
                || (is_causal && $signed({2'b00, key}) > (P_W+1)'(first_position) + (P_W+1)'(i));

            // Which column: written as a choice of N, because tools make a shifter of a variable slice.
            always_comb begin
                score = 0;
                for (int c = 0; c < N; c++) begin
                    score = score | (scores[(i*N+c)*S_W +: S_W] & {S_W{max_column == LOG_N'(c)}});
                end
            end

            softmax_lane #(.N(N), .S_W(S_W), .L_W(L_W)) lane (
                .clk(clk), .clear(clear),
                .mult(job_mult), .right(job_right), .half(job_half),
                .max_valid(max_runs), .max_masked(masked), .max_column(max_column),
                .score(score), .max_done(max_done[i]),
                .pow_valid(pow_runs), .pow_column(pow_column), .pow_done(pow_done[i]),
                .weights(weights[i*N*16 +: N*16]), .shift(shifts[i*6 +: 6]),
                .total(totals[i*L_W +: L_W])
            );
            normalize_lane #(.L_W(L_W), .O_W(O_W)) divider (
                .clk(clk), .rst(rst), .start(starts_division), .total(totals[i*L_W +: L_W]),
                .done(divided[i]), .element(held_2[i*O_W +: O_W]),
                .result(results[i*16 +: 16])
            );

            assign shift = shifts[i*6 +: 6];
            always_ff @(posedge clk) begin
                coarse_3 <= $signed(held_2[i*O_W +: O_W]) >>> {shift[5:3], 3'b000};
                shrunk_4 <= coarse_3 >>> shift[2:0];
                fresh_5 <= (is_zero[SUMS_AT] ? {O_W{1'b0}} : shrunk_4)
                    + O_W'($signed(sums[i*SUM_W +: SUM_W]));
            end
            assign renewed[i*O_W +: O_W] = fresh_5;
        end
    endgenerate

    // --- the stream of results -------------------------------------------------------------------
    // A result is read only if the queue has room for it when it comes out of the divider.
    localparam int LOG_ROOM = 4;
    logic [LOG_ROOM:0] room;
    logic [6:1] is_result;
    logic are_divided, unused_ready;

    assign reads_result = results_run && room != 0;
    assign results_end = reads_result && result == LOG_D'(DIM - 1);

    always_ff @(posedge clk) begin
        if (clear) begin
            results_run <= 1'b0;
            are_divided <= 1'b0;
            result <= 0;
        end else begin
            if (&divided) are_divided <= 1'b1;
            if (part == RESULTS && are_divided && is_value == 0) results_run <= 1'b1;
            if (reads_result) result <= result + 1'b1;
            if (results_end) results_run <= 1'b0;
        end
        is_result <= rst ? 6'd0 : {is_result[5:1], reads_result};
        if (rst) room <= (LOG_ROOM+1)'(1 << LOG_ROOM);
        else room <= room - (LOG_ROOM+1)'(reads_result) + (LOG_ROOM+1)'(out_valid && out_ready);
    end

    stream_fifo #(.W(N*16), .LOG_DEPTH(LOG_ROOM)) out_queue (
        .clk(clk), .rst(rst),
        .in_valid(is_result[6]), .in_ready(unused_ready), .in_data(results),
        .out_valid(out_valid), .out_ready(out_ready), .out_data(out_data)
    );
endmodule
