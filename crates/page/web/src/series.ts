// Pictures of shares over time.
import type { Line } from './document';

export interface Layer {
  id: string;
  path: string;
}

/** Areas on top of each other, a step for each part: x counts parts, y is percent from the top. */
export function stack(lines: Line[]): Layer[] {
  const parts = lines[0]?.shares.length ?? 0;
  const below = new Array<number>(parts).fill(0);
  return lines.map(({ id, shares }) => {
    let there = '';
    let back = '';
    for (let part = 0; part < parts; part++) {
      const low = below[part] ?? 0;
      const high = Math.min(10_000, low + (shares[part] ?? 0));
      below[part] = high;
      const y = (share: number) => round(100 - share / 100);
      there += `L${part} ${y(high)}L${part + 1} ${y(high)}`;
      back = `L${part + 1} ${y(low)}L${part} ${y(low)}${back}`;
    }
    return { id, path: `M0 ${round(100 - (below[0] ?? 0) / 100)}${there}${back}Z` };
  });
}

/** Bars from the lower edge: x counts parts, y is percent of the largest from the top. */
export function bars(parts: number[]): string {
  const most = Math.max(1, ...parts);
  return parts.map((part, at) => (part > 0 ? `M${at} 100V${round(100 - (part / most) * 100)}h1V100z` : '')).join('');
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}

/** Four to eight round numbers between two. */
export function ticks(from: number, to: number): number[] {
  const rough = (to - from) / 6;
  if (!(rough > 0)) return [];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((factor) => factor * power >= rough) ?? 10);
  const all: number[] = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) all.push(at);
  return all;
}
