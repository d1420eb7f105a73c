// Behaviour of the two blocks of ECP5 for which Yosys' cells_sim.v has ports alone, as far as Yosys
// infers them for these tiles: the multiplier without its registers, and the block memory with one
// clock and without output registers, which writes through port A and reads through port B (and A, if
// its width is 18). A mode that is not modelled here stops the simulation.
module MULT18X18D (
    input A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0, B17, B16,
    B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0, C17, C16, C15, C14, C13, C12,
    C11, C10, C9, C8, C7, C6, C5, C4, C3, C2, C1, C0, SIGNEDA, SIGNEDB, SOURCEA, SOURCEB,
    output P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19, P18,
    P17, P16, P15, P14, P13, P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0
);
    wire signed [18:0] a = {SIGNEDA & A17, A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5,
    A4, A3, A2, A1, A0};
    wire signed [18:0] b = {SIGNEDB & B17, B17, B16, B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5,
    B4, B3, B2, B1, B0};
    wire signed [37:0] product = a * b;
    assign {P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19, P18,
    P17, P16, P15, P14, P13, P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0} = product[35:0];
endmodule

module DP16KD (
    input DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6, DIA5, DIA4,
    DIA3, DIA2, DIA1, DIA0, ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2,
    ADA1, ADA0, CEA, OCEA, CLKA, WEA, RSTA, CSA2, CSA1, CSA0, DIB17, DIB16, DIB15, DIB14, DIB13, DIB12,
    DIB11, DIB10, DIB9, DIB8, DIB7, DIB6, DIB5, DIB4, DIB3, DIB2, DIB1, DIB0, ADB13, ADB12, ADB11,
    ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0, CEB, OCEB, CLKB, WEB, RSTB,
    CSB2, CSB1, CSB0,
    output DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5, DOA4,
    DOA3, DOA2, DOA1, DOA0, DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7,
    DOB6, DOB5, DOB4, DOB3, DOB2, DOB1, DOB0
);
    parameter DATA_WIDTH_A = 18, DATA_WIDTH_B = 18;
    parameter REGMODE_A = "NOREG", REGMODE_B = "NOREG", RESETMODE = "SYNC", ASYNC_RESET_RELEASE = "SYNC";
    parameter CSDECODE_A = "0b000", CSDECODE_B = "0b000", GSR = "DISABLED";
    parameter CLKAMUX = "CLKA", CLKBMUX = "CLKB", WRITEMODE_A = "NORMAL", WRITEMODE_B = "NORMAL";
    parameter [319:0] INITVAL_00 = 320'd0;
    parameter [319:0] INITVAL_01 = 320'd0;
    parameter [319:0] INITVAL_02 = 320'd0;
    parameter [319:0] INITVAL_03 = 320'd0;
    parameter [319:0] INITVAL_04 = 320'd0;
    parameter [319:0] INITVAL_05 = 320'd0;
    parameter [319:0] INITVAL_06 = 320'd0;
    parameter [319:0] INITVAL_07 = 320'd0;
    parameter [319:0] INITVAL_08 = 320'd0;
    parameter [319:0] INITVAL_09 = 320'd0;
    parameter [319:0] INITVAL_0A = 320'd0;
    parameter [319:0] INITVAL_0B = 320'd0;
    parameter [319:0] INITVAL_0C = 320'd0;
    parameter [319:0] INITVAL_0D = 320'd0;
    parameter [319:0] INITVAL_0E = 320'd0;
    parameter [319:0] INITVAL_0F = 320'd0;
    parameter [319:0] INITVAL_10 = 320'd0;
    parameter [319:0] INITVAL_11 = 320'd0;
    parameter [319:0] INITVAL_12 = 320'd0;
    parameter [319:0] INITVAL_13 = 320'd0;
    parameter [319:0] INITVAL_14 = 320'd0;
    parameter [319:0] INITVAL_15 = 320'd0;
    parameter [319:0] INITVAL_16 = 320'd0;
    parameter [319:0] INITVAL_17 = 320'd0;
    parameter [319:0] INITVAL_18 = 320'd0;
    parameter [319:0] INITVAL_19 = 320'd0;
    parameter [319:0] INITVAL_1A = 320'd0;
    parameter [319:0] INITVAL_1B = 320'd0;
    parameter [319:0] INITVAL_1C = 320'd0;
    parameter [319:0] INITVAL_1D = 320'd0;
    parameter [319:0] INITVAL_1E = 320'd0;
    parameter [319:0] INITVAL_1F = 320'd0;
    parameter [319:0] INITVAL_20 = 320'd0;
    parameter [319:0] INITVAL_21 = 320'd0;
    parameter [319:0] INITVAL_22 = 320'd0;
    parameter [319:0] INITVAL_23 = 320'd0;
    parameter [319:0] INITVAL_24 = 320'd0;
    parameter [319:0] INITVAL_25 = 320'd0;
    parameter [319:0] INITVAL_26 = 320'd0;
    parameter [319:0] INITVAL_27 = 320'd0;
    parameter [319:0] INITVAL_28 = 320'd0;
    parameter [319:0] INITVAL_29 = 320'd0;
    parameter [319:0] INITVAL_2A = 320'd0;
    parameter [319:0] INITVAL_2B = 320'd0;
    parameter [319:0] INITVAL_2C = 320'd0;
    parameter [319:0] INITVAL_2D = 320'd0;
    parameter [319:0] INITVAL_2E = 320'd0;
    parameter [319:0] INITVAL_2F = 320'd0;
    parameter [319:0] INITVAL_30 = 320'd0;
    parameter [319:0] INITVAL_31 = 320'd0;
    parameter [319:0] INITVAL_32 = 320'd0;
    parameter [319:0] INITVAL_33 = 320'd0;
    parameter [319:0] INITVAL_34 = 320'd0;
    parameter [319:0] INITVAL_35 = 320'd0;
    parameter [319:0] INITVAL_36 = 320'd0;
    parameter [319:0] INITVAL_37 = 320'd0;
    parameter [319:0] INITVAL_38 = 320'd0;
    parameter [319:0] INITVAL_39 = 320'd0;
    parameter [319:0] INITVAL_3A = 320'd0;
    parameter [319:0] INITVAL_3B = 320'd0;
    parameter [319:0] INITVAL_3C = 320'd0;
    parameter [319:0] INITVAL_3D = 320'd0;
    parameter [319:0] INITVAL_3E = 320'd0;
    parameter [319:0] INITVAL_3F = 320'd0;

    // 1024 words of 18 bits; a port of 36 bits takes two of them, the lower one first.
    reg [17:0] words [0:1023];
    reg [35:0] read_a, read_b;
    integer i;

    task fill(input [5:0] slice, input [319:0] value);
        for (i = 0; i < 16; i = i + 1) words[slice*16+i] = value[i*20 +: 18];
    endtask
    initial begin
        if (REGMODE_A != "NOREG" || REGMODE_B != "NOREG" || DATA_WIDTH_A != DATA_WIDTH_B
            || (DATA_WIDTH_A != 18 && DATA_WIDTH_A != 36)) begin
            $display("FAIL: a mode of DP16KD that has no model");
            $finish;
        end
        fill(0, INITVAL_00);
        fill(1, INITVAL_01);
        fill(2, INITVAL_02);
        fill(3, INITVAL_03);
        fill(4, INITVAL_04);
        fill(5, INITVAL_05);
        fill(6, INITVAL_06);
        fill(7, INITVAL_07);
        fill(8, INITVAL_08);
        fill(9, INITVAL_09);
        fill(10, INITVAL_0A);
        fill(11, INITVAL_0B);
        fill(12, INITVAL_0C);
        fill(13, INITVAL_0D);
        fill(14, INITVAL_0E);
        fill(15, INITVAL_0F);
        fill(16, INITVAL_10);
        fill(17, INITVAL_11);
        fill(18, INITVAL_12);
        fill(19, INITVAL_13);
        fill(20, INITVAL_14);
        fill(21, INITVAL_15);
        fill(22, INITVAL_16);
        fill(23, INITVAL_17);
        fill(24, INITVAL_18);
        fill(25, INITVAL_19);
        fill(26, INITVAL_1A);
        fill(27, INITVAL_1B);
        fill(28, INITVAL_1C);
        fill(29, INITVAL_1D);
        fill(30, INITVAL_1E);
        fill(31, INITVAL_1F);
        fill(32, INITVAL_20);
        fill(33, INITVAL_21);
        fill(34, INITVAL_22);
        fill(35, INITVAL_23);
        fill(36, INITVAL_24);
        fill(37, INITVAL_25);
        fill(38, INITVAL_26);
        fill(39, INITVAL_27);
        fill(40, INITVAL_28);
        fill(41, INITVAL_29);
        fill(42, INITVAL_2A);
        fill(43, INITVAL_2B);
        fill(44, INITVAL_2C);
        fill(45, INITVAL_2D);
        fill(46, INITVAL_2E);
        fill(47, INITVAL_2F);
        fill(48, INITVAL_30);
        fill(49, INITVAL_31);
        fill(50, INITVAL_32);
        fill(51, INITVAL_33);
        fill(52, INITVAL_34);
        fill(53, INITVAL_35);
        fill(54, INITVAL_36);
        fill(55, INITVAL_37);
        fill(56, INITVAL_38);
        fill(57, INITVAL_39);
        fill(58, INITVAL_3A);
        fill(59, INITVAL_3B);
        fill(60, INITVAL_3C);
        fill(61, INITVAL_3D);
        fill(62, INITVAL_3E);
        fill(63, INITVAL_3F);
    end

    wire [9:0] at_a = {ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4};
    wire [9:0] at_b = {ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4};
    wire [35:0] data = {DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6,
    DIB5, DIB4, DIB3, DIB2, DIB1, DIB0, DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9,
    DIA8, DIA7, DIA6, DIA5, DIA4, DIA3, DIA2, DIA1, DIA0};
    wire [3:0] writes = {ADA3, ADA2, ADA1, ADA0} & (DATA_WIDTH_A == 36 ? 4'hF : 4'h3);
    wire [9:0] high_a = DATA_WIDTH_A == 36 ? {at_a[9:1], 1'b1} : at_a, low_a = DATA_WIDTH_A == 36 ? {at_a[9:1], 1'b0} : at_a;
    wire [9:0] high_b = DATA_WIDTH_B == 36 ? {at_b[9:1], 1'b1} : at_b, low_b = DATA_WIDTH_B == 36 ? {at_b[9:1], 1'b0} : at_b;

    always @(posedge CLKA) if (CEA) begin
        read_a <= {words[high_a], words[low_a]};
        if (WEA) begin
            if (writes[0]) words[low_a][8:0] <= data[8:0];
            if (writes[1]) words[low_a][17:9] <= data[17:9];
            if (writes[2]) words[high_a][8:0] <= data[26:18];
            if (writes[3]) words[high_a][17:9] <= data[35:27];
        end
    end
    always @(posedge CLKB) if (CEB) read_b <= {words[high_b], words[low_b]};
    always @(posedge CLKB) if (CEB && WEB) begin
        $display("FAIL: a write through port B of DP16KD, which has no model");
        $finish;
    end
    // Of a port of 36 bits, DOA has the lower half of what port B reads.
    assign {DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5, DOA4,
    DOA3, DOA2, DOA1, DOA0} = DATA_WIDTH_B == 36 ? read_b[17:0] : read_a[17:0];
    assign {DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5, DOB4,
    DOB3, DOB2, DOB1, DOB0} = DATA_WIDTH_B == 36 ? read_b[35:18] : read_b[17:0];
endmodule
