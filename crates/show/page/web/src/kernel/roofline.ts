// An instruction roofline: how fast a kernel executes instructions of warps, over how many it
// executes for a byte of global memory. Below the slanted roof memory could give no more, below the
// flat one the issue slots.
import type { Kernel } from '../document';

export interface Roofs {
  /** In a nanosecond. */
  warp_instructions: number;
  memory_bytes: number;
}

export interface Point {
  kernel: Kernel;
  /** Warp instructions for a byte. */
  intensity: number;
  /** Warp instructions in a nanosecond, and the ends of the interval. */
  rate: number;
  low: number;
  high: number;
  isMeasured: boolean;
  /** Of what the roof above it allows. */
  share: number;
}

/** The roof above an intensity, in warp instructions a nanosecond. */
export const roofAt = (roofs: Roofs, intensity: number) => Math.min(roofs.warp_instructions, intensity * roofs.memory_bytes);

/** The shapes whose work is known and touches global memory. */
export function points(shapes: Kernel[], roofs: Roofs): Point[] {
  return shapes.flatMap((kernel) => {
    const { work, duration_ns: predicted, measured_ns: measured } = kernel.prediction ?? {};
    if (!work || !predicted || !(work.global_bytes > 0) || !(work.warp_instructions > 0)) return [];
    const intensity = work.warp_instructions / work.global_bytes;
    const [value, low, high] = measured ? [measured.value, measured.low ?? measured.value, measured.high ?? measured.value] : [predicted.value, predicted.low, predicted.high];
    if (!(value > 0) || !(low > 0)) return [];
    const rate = work.warp_instructions / value;
    const ends = { low: work.warp_instructions / high, high: work.warp_instructions / low };
    return [{ kernel, intensity, rate, ...ends, isMeasured: Boolean(measured), share: rate / roofAt(roofs, intensity) }];
  });
}

/** Powers of ten that hold all of these numbers. */
export function decades(values: number[]): number[] {
  const [from, to] = [Math.floor(Math.log10(Math.min(...values))), Math.ceil(Math.log10(Math.max(...values)))];
  return Array.from({ length: Math.max(2, to - from + 1) }, (_, at) => from + at);
}
