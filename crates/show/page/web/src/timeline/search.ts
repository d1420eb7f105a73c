// Which kernels a search means, and where they are launched as far as tiles tell.
import type { Tile } from './tiles';

/**
 * Whether a name is searched for: `"gemm"` is the whole name, `*` any characters, anything else a
 * part of it.
 */
export function matcher(search: string): (name: string) => boolean {
  const wanted = search.trim().toLowerCase();
  if (!wanted) return () => false;
  if (wanted.length > 2 && wanted.startsWith('"') && wanted.endsWith('"')) return (name) => name.toLowerCase() === wanted.slice(1, -1);
  const parts = wanted.split('*');
  if (parts.length === 1) return (name) => name.toLowerCase().includes(wanted);
  return (name) => {
    const text = name.toLowerCase();
    const [first = '', last = ''] = [parts[0], parts.at(-1)];
    if (!text.startsWith(first) || !text.endsWith(last) || text.length < first.length + last.length) return false;
    let at = first.length;
    for (const part of parts.slice(1, -1)) {
      const found = text.indexOf(part, at);
      if (found < 0) return false;
      at = found + part.length;
    }
    return at <= text.length - last.length;
  };
}

/** Where something is launched: an event, or a column in which it takes most of the time. */
export interface Hit {
  lane: string;
  start: number;
  end: number;
  isEvent: boolean;
}

/**
 * The nearest hit after a time, or before it. A column counts only where no event that is known of
 * lies in it.
 */
export function nearest(tiles: Iterable<Tile>, time: number, isNext: boolean, lanes: Set<string>): Hit | null {
  let event: Hit | null = null;
  let column: Hit | null = null;
  const isNearer = (start: number, best: Hit | null) =>
    isNext ? start > time && (best === null || start < best.start) : start < time && (best === null || start > best.start);
  for (const { lane, events, found, from, columnNs } of tiles) {
    if (!lanes.has(lane)) continue;
    events?.found.forEach((is, at) => {
      const start = events.start[at]!;
      if (is && isNearer(start, event)) event = { lane, start, end: events.end[at]!, isEvent: true };
    });
    found?.forEach((share, at) => {
      const start = from + at * columnNs;
      if (share > 0 && isNearer(start, column)) column = { lane, start, end: start + columnNs, isEvent: false };
    });
  }
  const [known, rough] = [event as Hit | null, column as Hit | null];
  if (!known || !rough) return known ?? rough;
  return (isNext ? known.start <= rough.end : known.start >= rough.start) ? known : rough;
}
