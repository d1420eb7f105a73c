// Pictures of shares over time.

/** Shares of each part, in ten thousandths. */
export interface Shares {
  id: string;
  shares: number[];
}

export interface Layer {
  id: string;
  path: string;
}

/** Areas on top of each other, a step for each part: x counts parts, y is percent from the top. */
export function stack(lines: Shares[]): Layer[] {
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

/**
 * A line through the middles of parts: x counts parts, y is percent of `most` from the top; a gap
 * where there is nothing.
 */
export function line(parts: (number | null)[], most: number): string {
  let path = '';
  parts.forEach((part, at) => {
    if (part === null) return;
    const before = at > 0 ? (parts[at - 1] ?? null) : null;
    const after = parts[at + 1] ?? null;
    // A part alone is as wide as it is.
    if (before === null && after === null) path += `M${at} ${height(part, most)}h1`;
    else path += `${before === null ? 'M' : 'L'}${at + 0.5} ${height(part, most)}`;
  });
  return path;
}

/** The area between least and most of each part, a step for each. */
export function band(leasts: (number | null)[], mosts: (number | null)[], most: number): string {
  return leasts
    .map((least, at) => {
      const top = mosts[at] ?? null;
      return least === null || top === null ? '' : `M${at} ${height(top, most)}h1V${height(least, most)}h-1z`;
    })
    .join('');
}

/** With room for the line's own width at both ends. */
function height(value: number, most: number): number {
  return round(96 - (most > 0 ? Math.min(1, value / most) : 0) * 92);
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
