// Plays a file of beats into an attention tile and compares what comes out with another file.
//
// Files (`fpga-model vectors` writes them), one hexadecimal word a line:
//   +beats=FILE    {first of a job, settings, last, mask, data}
//   +expected=FILE a beat of the result
// +n_beats, +n_expected: how many there are. Ways to play them:
//   +stalls=1      both sides wait at random (+seed)
//   +isolated=1    a job begins when the result of the one before has left; prints each job's cycles
//   +reset_at=K    resets the tile when it has taken K beats, and plays everything again
// Prints "PASS" at the end, or "FAIL" and why.
module attention_tb #(
    parameter int N = 8,
    parameter int DIM = 64,
    parameter int MOST = 1 << 17
);
    localparam int SETTINGS_W = 1 + 18 + 16 + 5;
    localparam int BEAT_W = 1 + SETTINGS_W + 1 + N + 8 * N;

    logic clk = 0, rst = 1;
    always #5 clk = ~clk;

    logic [BEAT_W-1:0] beats [0:MOST-1];
    logic [N*16-1:0] expected [0:MOST-1];
    string beats_file, expected_file;
    integer n_beats, n_expected, stalls, isolated, reset_at, seed;

    // A default comes after the question: Verilator 5.006 does not see that the question sets a variable,
    // and goes on with what it was before.
    initial begin
        if (!$value$plusargs("n_beats=%d", n_beats)) n_beats = 0;
        if (!$value$plusargs("n_expected=%d", n_expected)) n_expected = 0;
        if (!$value$plusargs("stalls=%d", stalls)) stalls = 0;
        if (!$value$plusargs("isolated=%d", isolated)) isolated = 0;
        if (!$value$plusargs("reset_at=%d", reset_at)) reset_at = -1;
        if (!$value$plusargs("seed=%d", seed)) seed = 1;
        if (!$value$plusargs("beats=%s", beats_file) || !$value$plusargs("expected=%s", expected_file)
            || n_beats < 1 || n_expected < 1 || n_beats > MOST || n_expected > MOST) begin
            $display("FAIL: no +beats and +expected, or not 1 to %0d words", MOST);
            $finish;
        end
        $readmemh(beats_file, beats, 0, n_beats - 1);
        $readmemh(expected_file, expected, 0, n_expected - 1);
    end

    // --- the tile --------------------------------------------------------------------------------
    integer taken = 0, given = 0;
    logic offers = 0, accepts = 0;
    logic is_first, causal, in_last, in_ready, out_valid;
    logic signed [17:0] position;
    logic [15:0] mult;
    logic [4:0] right;
    logic [N-1:0] in_mask;
    logic [8*N-1:0] in_data;
    logic [16*N-1:0] out_data;

    assign {is_first, right, mult, position, causal, in_last, in_mask, in_data} = beats[taken];

`ifdef NETLIST
    attention_tile tile (
`else
    attention_tile #(.N(N), .DIM(DIM)) tile (
`endif
        .clk(clk), .rst(rst), .causal(causal), .position(position), .mult(mult), .right(right),
        .in_valid(offers), .in_ready(in_ready), .in_data(in_data), .in_mask(in_mask), .in_last(in_last),
        .out_valid(out_valid), .out_ready(accepts), .out_data(out_data)
    );

    // --- both sides ------------------------------------------------------------------------------
    integer cycle = 0, quiet = 0, resets = 0, started = 0, begun [0:1023];
    integer job_in = 0, job_out = 0, first_cycle = 0;
    logic [31:0] coins;
    logic next_is_first, was_waiting = 0;
    logic [16*N-1:0] waiting_data;

    assign next_is_first = beats[taken + 1][BEAT_W-1];

    task fail(input string why);
        $display("FAIL: %s: cycle %0d, beats taken %0d, results given %0d, %h instead of %h", why, cycle,
            taken, given, out_data, expected[given]);
        $finish;
    endtask

    always @(posedge clk) begin
        cycle <= cycle + 1;
        coins <= $random(seed);
        if (cycle == 4) rst <= 0;
        if (rst) begin
            offers <= 0;
            accepts <= 0;
            was_waiting <= 0;
        end else begin
            // The source. Without a word that it may offer, or by a coin, it pauses.
            if (!offers) offers <= taken < n_beats && (stalls == 0 || coins[0])
                && (isolated == 0 || !is_first || job_in == job_out);
            else if (in_ready) begin
                if (is_first) begin
                    begun[job_in % 1024] = cycle;
                    if (job_in == 0) first_cycle = cycle;
                    job_in = job_in + 1;
                end
                taken <= taken + 1;
                offers <= taken + 1 < n_beats && (stalls == 0 || coins[1])
                    && (isolated == 0 || !next_is_first);
            end
            // The sink.
            accepts <= stalls == 0 || coins[2];
            if (out_valid && accepts) begin
                if (given >= n_expected) fail("more results than expected");
                else if (out_data !== expected[given]) fail("another result");
                if (given % DIM == DIM - 1) begin
                    if (isolated != 0) begin
                        $display("job %0d cycles %0d", job_out, cycle - begun[job_out % 1024] + 1);
                    end
                    job_out = job_out + 1;
                end
                given <= given + 1;
                quiet <= 0;
            end else quiet <= quiet + 1;
            // What is offered stays until it is taken.
            was_waiting <= out_valid && !accepts;
            waiting_data <= out_data;
            if (out_valid === 1'bx || in_ready === 1'bx) fail("a handshake is unknown");
            if (was_waiting && (!out_valid || out_data !== waiting_data)) fail("a result changed");
            // The end: everything has come, and no more comes.
            if (given == n_expected && taken == n_beats && quiet == 400) begin
                $display("PASS beats %0d results %0d total %0d resets %0d", taken, given,
                    cycle - 400 - first_cycle, resets);
                $finish;
            end
            if (quiet > 50000) fail("nothing comes");
            // A reset in the middle, once.
            if (resets == 0 && taken == reset_at) begin
                resets <= 1;
                rst <= 1;
                started <= cycle;
                taken <= 0;
                given <= 0;
                job_in = 0;
                job_out = 0;
            end
        end
        if (resets == 1 && rst && cycle == started + 3) rst <= 0;
    end
endmodule
