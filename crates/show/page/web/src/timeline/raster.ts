// Draws columns and events into pixels, row by row of the picture. What a frame costs depends on
// its pixels alone, not on how many launches lie behind them, and not on what the machine has to
// draw with.
import type { Span } from './viewport';

/** A colour as the pixels of a canvas hold it: little-endian, opaque. */
export type Colour = number;

export function colour(red: number, green: number, blue: number): Colour {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** A colour that lies a share of the way to another one. */
export function mixed(from: Colour, to: Colour, share: number): Colour {
  const part = (shift: number) => {
    const [a, b] = [(from >>> shift) & 255, (to >>> shift) & 255];
    return Math.round(a + (b - a) * share);
  };
  return colour(part(0), part(8), part(16));
}

/**
 * Whether black text is easier to read on a colour than white text is: by its relative luminance.
 */
export function isLight(of: Colour): boolean {
  const linear = (byte: number) => ((byte / 255 + 0.055) / 1.055) ** 2.4;
  const [red, green, blue] = [of & 255, (of >>> 8) & 255, (of >>> 16) & 255];
  return 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue) > 0.18;
}

/** What a picture shows, and how large it is. */
export class Raster {
  readonly pixels: Uint32Array;

  constructor(
    readonly width: number,
    readonly height: number,
    readonly view: Span,
    pixels?: Uint32Array,
  ) {
    this.pixels = pixels ?? new Uint32Array(width * height);
  }

  /** Pixels from the left edge, not rounded. */
  x(ns: number): number {
    return ((ns - this.view.from) / (this.view.to - this.view.from)) * this.width;
  }

  clear(with_: Colour) {
    this.pixels.fill(with_);
  }

  rectangle(x0: number, y0: number, x1: number, y1: number, of: Colour) {
    const [left, right] = [Math.max(0, x0), Math.min(this.width, x1)];
    const [top, bottom] = [Math.max(0, y0), Math.min(this.height, y1)];
    if (left >= right) return;
    for (let y = top; y < bottom; y++) this.pixels.fill(of, y * this.width + left, y * this.width + right);
  }

  /**
   * Columns from a time on, each `columnNs` long: shares, in 255ths, that are stacked from the
   * lower edge. `range` bounds the time that is drawn.
   */
  columns(start: number, columnNs: number, layers: { shares: Uint8Array; colour: Colour }[], range: Span, top: number, bottom: number) {
    const count = layers[0]?.shares.length ?? 0;
    const first = Math.max(0, Math.floor((Math.max(range.from, this.view.from) - start) / columnNs));
    const last = Math.min(count, Math.ceil((Math.min(range.to, this.view.to) - start) / columnNs));
    const [least, most] = [Math.round(this.x(range.from)), Math.round(this.x(range.to))];
    const height = bottom - top;
    let left = Math.max(least, Math.round(this.x(start + first * columnNs)));
    for (let column = first; column < last; column++) {
      const right = Math.min(most, Math.round(this.x(start + (column + 1) * columnNs)));
      if (right <= left) continue;
      let sum = 0;
      let below = bottom;
      for (const { shares, colour } of layers) {
        const share = shares[column] ?? 0;
        if (share === 0) continue;
        sum += share;
        // What runs at all is seen, be it one row.
        const above = Math.max(top, Math.min(below - 1, bottom - Math.round((Math.min(sum, 255) / 255) * height)));
        this.rectangle(left, above, right, below, colour);
        below = above;
      }
      left = right;
    }
  }

  /**
   * An event: at least a pixel wide; a wide one leaves a pixel before the next, unless it goes on
   * where this part of it ends.
   */
  event(start: number, end: number, top: number, bottom: number, of: Colour, goesOn = false) {
    const left = Math.round(this.x(start));
    const right = Math.max(left + 1, Math.round(this.x(end)));
    this.rectangle(left, top, right - left > 4 && !goesOn ? right - 1 : right, bottom, of);
  }
}
