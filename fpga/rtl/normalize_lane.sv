// The division of one row of the output by the row's sum of weights, without a divider for each
// element: one reciprocal a row, one multiplication an element.
//
// `start` takes the sum; `done` comes 24 cycles later: five steps shift the sum until its highest bit
// is set, 17 steps of a restoring division give r = (2^33 - 1) / (its upper 17 bits). An element then
// takes four cycles: the same shift, 18 bits times r, rounding to 8 fraction bits, saturation.
// A sum of 0 (every key masked) gives 0.
module normalize_lane #(
    parameter int L_W = 32,
    parameter int O_W = 40
) (
    input  logic                    clk,
    input  logic                    rst,
    input  logic                    start,
    input  logic [L_W-1:0]          total,
    output logic                    done,
    input  logic signed [O_W-1:0]   element,
    output logic signed [15:0]      result
);
    localparam int WIDE = O_W + 1;

    logic [4:0] step, zeros;
    logic busy, is_empty;
    logic [31:0] scaled;
    logic [16:0] remainder;
    logic [17:0] trial;
    logic [16:0] reciprocal;

    assign trial = {remainder, 1'b1};

    always_ff @(posedge clk) begin
        done <= busy && step == 22 && !rst;
        if (rst) busy <= 1'b0;
        else if (start) begin
            busy <= 1'b1;
            step <= 0;
            scaled <= total;
            zeros <= 0;
            is_empty <= total == 0;
            remainder <= 17'h0FFFF;
        end else if (busy) begin
            step <= step + 1'b1;
            case (step)
                0: if (scaled[31:16] == 0) begin scaled <= scaled << 16; zeros[4] <= 1'b1; end
                1: if (scaled[31:24] == 0) begin scaled <= scaled << 8; zeros[3] <= 1'b1; end
                2: if (scaled[31:28] == 0) begin scaled <= scaled << 4; zeros[2] <= 1'b1; end
                3: if (scaled[31:30] == 0) begin scaled <= scaled << 2; zeros[1] <= 1'b1; end
                4: if (!scaled[31]) begin scaled <= scaled << 1; zeros[0] <= 1'b1; end
                default: if (step < 22) begin
                    reciprocal <= {reciprocal[15:0], trial >= {1'b0, scaled[31:15]}};
                    remainder <= trial >= {1'b0, scaled[31:15]} ? trial[16:0] - scaled[31:15] : trial[16:0];
                end else busy <= 1'b0;
            endcase
        end
    end

    logic signed [WIDE-1:0] coarse_1;
    logic signed [17:0] scaled_2;
    logic signed [35:0] product_3;
    logic signed [18:0] rounded;

    assign rounded = 19'((product_3 + 36'sd65536) >>> 17);

    always_ff @(posedge clk) begin
        coarse_1 <= WIDE'(element) <<< {zeros[4:3], 3'b000};
        scaled_2 <= 18'((coarse_1 <<< zeros[2:0]) >>> (WIDE - 18));
        product_3 <= scaled_2 * $signed({1'b0, reciprocal});
        if (is_empty) result <= 0;
        else if (rounded > 32767) result <= 16'sh7FFF;
        else if (rounded < -32768) result <= -16'sh8000;
        else result <= rounded[15:0];
    end
endmodule
