#!/usr/bin/env python3
"""Draws what a command prints in a terminal as an SVG file.

    scripts/terminal_picture.py [--columns N] [--lines N] [--title TEXT] OUT.svg COMMAND...

The command must colour by itself (`apex --color always`). Bold, faint, underlined text and the sixteen
colours of terminals are drawn; other sequences are an error. The same output gives the same file.

The picture of README.md, from the folder of an unpacked data/h200/corpus/torch-eager_training.tar.xz (`recorded-session unpack`):

    terminal_picture.py --lines 17 --title "apex report" docs/pictures/report.svg apex report --color always DIR

Those of docs/first-report.md, after `apex demo -o demo`:

    terminal_picture.py --columns 120 --lines 54 --title "apex report demo" docs/pictures/first-report.svg \\
        apex report --color always demo
    terminal_picture.py --lines 34 --title "apex advise demo" docs/pictures/first-advice.svg apex advise --color always demo

That of docs/guides/cuda.md:

    terminal_picture.py --title "apex predict --grid 4096 --block 256 --registers 64" docs/pictures/predict.svg \\
        apex predict --color always --grid 4096 --block 256 --registers 64
"""
import argparse
import os
import re
import subprocess
import unicodedata
from xml.sax.saxutils import escape

WIDTH, HEIGHT, MARGIN, BAR = 8.4, 19, 16, 34
COLOURS = ["#484f58", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#b1bac4"]
WORDS = re.compile(r"\S+(?: \S+)*")
SEQUENCE = re.compile(r"\x1b\[([0-9;]*)m")


def style(codes, now):
    """The style after a sequence: a set of SVG attributes by name."""
    now = dict(now)
    for code in (int(code or 0) for code in codes.split(";")):
        if code == 0:
            now = {}
        elif code in (39, 22, 24):
            for name in {39: ["fill"], 22: ["font-weight", "opacity"], 24: ["text-decoration"]}[code]:
                now.pop(name, None)
        elif code == 1:
            now["font-weight"] = "bold"
        elif code == 2:
            now["opacity"] = "0.6"
        elif code == 4:
            now["text-decoration"] = "underline"
        elif 30 <= code <= 37 or 90 <= code <= 97:
            now["fill"] = COLOURS[code % 10]
        else:
            raise SystemExit(f"the command uses the sequence {code}, which cannot be drawn")
    return now


def runs(line, now):
    """Pieces of a line as (column, text, style), and the style behind it."""
    pieces, column, end = [], 0, 0
    for match in [*SEQUENCE.finditer(line), None]:
        text = line[end : match.start() if match else len(line)]
        if text:
            pieces.append((column, text, now))
            column += sum(0 if unicodedata.combining(c) else 1 for c in text)
        if match:
            now, end = style(match[1], now), match.end()
    return pieces, now


def svg(text, columns, title):
    lines = text.rstrip("\n").split("\n")
    width, height = columns * WIDTH + 2 * MARGIN, len(lines) * HEIGHT + 2 * MARGIN + BAR
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width:g}" height="{height:g}" rx="8" fill="#0d1117"/>',
    ]
    out += [f'<circle cx="{20 + 18 * i}" cy="18" r="5.5" fill="{c}"/>' for i, c in enumerate(["#ff5f57", "#febc2e", "#28c840"])]
    font = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
    out.append(f'<text x="{width / 2:g}" y="22" text-anchor="middle" font-family="{font}" font-size="12" fill="#8b949e">{escape(title)}</text>')
    out.append(f'<g font-family="{font}" font-size="14" fill="#e6edf3">')
    now = {}
    for row, line in enumerate(lines):
        pieces, now = runs(line, now)
        for column, piece, attributes in pieces:
            extra = "".join(f' {name}="{value}"' for name, value in sorted(attributes.items()))
            # Browsers draw several blanks as one: what stands between them has its own place.
            for words in WORDS.finditer(piece):
                x, y = MARGIN + (column + words.start()) * WIDTH, BAR + MARGIN + row * HEIGHT + 10
                length = len(words[0]) * WIDTH
                out.append(f'<text x="{x:g}" y="{y:g}" textLength="{length:g}"{extra}>{escape(words[0])}</text>')
    return "\n".join([*out, "</g>", "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", type=int, default=96)
    parser.add_argument("--lines", type=int, help="draw the first N lines only")
    parser.add_argument("--title", default="")
    parser.add_argument("out")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    environment = {**os.environ, "COLUMNS": str(arguments.columns)}
    printed = subprocess.run(arguments.command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    text = "\n".join(printed.split("\n")[: arguments.lines])
    with open(arguments.out, "w", encoding="utf-8") as file:
        file.write(svg(text, arguments.columns, arguments.title))


if __name__ == "__main__":
    main()
