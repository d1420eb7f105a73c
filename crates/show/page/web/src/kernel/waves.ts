// A grid in waves, as the map draws it: what each multiprocessor (SM) holds in each wave.
import type { Geometry } from '../document';

/** Waves that look the same, and the blocks on each SM; those of a summary are not drawn. */
export interface Row {
  first: number;
  last: number;
  blocks: number[];
  summary: boolean;
}

/** Waves that are drawn one by one at each end of a long grid. */
const ENDS = 3;

/** Blocks as the hardware spreads them: evenly, the first SMs get one more. */
export function spread(blocks: number, sms: number): number[] {
  const [each, more] = [Math.floor(blocks / sms), blocks % sms];
  return Array.from({ length: sms }, (_, sm) => each + (sm < more ? 1 : 0));
}

export function rows(geometry: Geometry, sms: number): Row[] {
  const { full_waves: full, tail_blocks: tail, wave_blocks: whole } = geometry;
  if (whole === 0 || sms === 0) return [];
  const row = (wave: number, blocks: number): Row => ({ first: wave, last: wave, blocks: spread(blocks, sms), summary: false });
  const one = (wave: number) => row(wave, wave <= full ? whole : tail);
  const all = full + (tail > 0 ? 1 : 0);
  const waves = (from: number, to: number) => Array.from({ length: Math.max(0, to - from + 1) }, (_, at) => one(from + at));
  if (all <= 2 * ENDS + 1) return waves(1, all);
  const middle: Row = { ...row(ENDS + 1, whole), last: all - ENDS, summary: true };
  return [...waves(1, ENDS), middle, ...waves(all - ENDS + 1, all)];
}

/**
 * Bars from the lower edge of a row that is 100 high: x counts SMs. Equal neighbours are one shape.
 */
export function shape({ blocks }: Row, most: number): string {
  let path = '';
  for (let from = 0, to = 0; from < blocks.length; from = to) {
    while (to < blocks.length && blocks[to] === blocks[from]) to++;
    const height = most > 0 ? Math.min(1, blocks[from]! / most) * 100 : 0;
    if (height > 0) path += `M${from} 100V${Math.round((100 - height) * 100) / 100}H${to}V100z`;
  }
  return path;
}
