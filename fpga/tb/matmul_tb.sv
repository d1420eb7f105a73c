// Plays a file of beats into a matrix tile and compares the rows that come out with another file.
// Files and options are those of attention_tb, except `isolated`; a beat is {last, a, b}.
module matmul_tb #(
    parameter int N = 8,
    parameter int MOST = 1 << 17
);
    localparam int BEAT_W = 1 + 16 * N;

    logic clk = 0, rst = 1;
    always #5 clk = ~clk;

    logic [BEAT_W-1:0] beats [0:MOST-1];
    logic [N*32-1:0] expected [0:MOST-1];
    string beats_file, expected_file;
    integer n_beats, n_expected, stalls, reset_at, seed;

    // A default comes after the question: Verilator 5.006 does not see that the question sets a variable,
    // and goes on with what it was before.
    initial begin
        if (!$value$plusargs("n_beats=%d", n_beats)) n_beats = 0;
        if (!$value$plusargs("n_expected=%d", n_expected)) n_expected = 0;
        if (!$value$plusargs("stalls=%d", stalls)) stalls = 0;
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

    integer taken = 0, given = 0;
    logic offers = 0, accepts = 0;
    logic in_last, in_ready, out_valid;
    logic [8*N-1:0] in_a, in_b;
    logic [32*N-1:0] out_row;

    assign {in_last, in_a, in_b} = beats[taken];

`ifdef NETLIST
    matmul_tile tile (
`else
    matmul_tile #(.N(N)) tile (
`endif
        .clk(clk), .rst(rst), .in_valid(offers), .in_ready(in_ready), .in_a(in_a), .in_b(in_b),
        .in_last(in_last), .out_valid(out_valid), .out_ready(accepts), .out_row(out_row)
    );

    integer cycle = 0, quiet = 0, resets = 0, started = 0, first_cycle = 0;
    logic [31:0] coins;
    logic was_waiting = 0;
    logic [32*N-1:0] waiting_row;

    task fail(input string why);
        $display("FAIL: %s: cycle %0d, beats taken %0d, results given %0d, %h instead of %h", why, cycle,
            taken, given, out_row, expected[given]);
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
            if (!offers) offers <= taken < n_beats && (stalls == 0 || coins[0]);
            else if (in_ready) begin
                if (taken == 0) first_cycle = cycle;
                taken <= taken + 1;
                offers <= taken + 1 < n_beats && (stalls == 0 || coins[1]);
            end
            accepts <= stalls == 0 || coins[2];
            if (out_valid && accepts) begin
                if (given >= n_expected) fail("more results than expected");
                else if (out_row !== expected[given]) fail("another result");
                given <= given + 1;
                quiet <= 0;
            end else quiet <= quiet + 1;
            was_waiting <= out_valid && !accepts;
            waiting_row <= out_row;
            if (out_valid === 1'bx || in_ready === 1'bx) fail("a handshake is unknown");
            if (was_waiting && (!out_valid || out_row !== waiting_row)) fail("a result changed");
            if (given == n_expected && taken == n_beats && quiet == 400) begin
                $display("PASS beats %0d results %0d total %0d resets %0d", taken, given,
                    cycle - 400 - first_cycle, resets);
                $finish;
            end
            if (quiet > 50000) fail("nothing comes");
            if (resets == 0 && taken == reset_at) begin
                resets <= 1;
                rst <= 1;
                started <= cycle;
                taken <= 0;
                given <= 0;
            end
        end
        if (resets == 1 && rst && cycle == started + 3) rst <= 0;
    end
endmodule
