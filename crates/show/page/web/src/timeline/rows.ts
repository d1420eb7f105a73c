// Where lanes stand in the panel, and what lies at a point of it.
import type { Group, Lane, LaneKind } from './model';

export interface Row {
  /** The group whose name stands here, or the lane. */
  group: Group;
  lane: Lane | null;
  top: number;
  height: number;
}

const HEADING = 26;
const HEIGHTS: Record<LaneKind, number> = { device: 34, stream: 22, thread: 22, range: 22 };

/** Groups that are open at first: those of a few processes. */
const OPEN_AT_FIRST = 2;

/** The open groups as the address has them; nothing there means those that are open at first. */
export function openGroups(text: string, groups: Group[]): Set<string> {
  if (text) return new Set(text.split(',').filter((id) => id !== 'none'));
  return new Set(groups.length <= OPEN_AT_FIRST ? groups.map(({ id }) => id) : []);
}

export function openText(open: Set<string>): string {
  return open.size === 0 ? 'none' : [...open].join(',');
}

/** Rows from top to bottom: of a closed group, its heading and its devices. */
export function rowsOf(groups: Group[], open: Set<string>): Row[] {
  const rows: Row[] = [];
  let top = 0;
  const add = (group: Group, lane: Lane | null, height: number) => {
    rows.push({ group, lane, top, height });
    top += height;
  };
  for (const group of groups) {
    add(group, null, HEADING);
    for (const lane of group.lanes) if (lane.kind === 'device' || open.has(group.id)) add(group, lane, HEIGHTS[lane.kind]);
  }
  return rows;
}

export function heightOf(rows: Row[]): number {
  const last = rows.at(-1);
  return last ? last.top + last.height : 0;
}

/** Index of the first row that ends below a height. */
function firstBelow(rows: Row[], y: number): number {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    const row = rows[middle]!;
    if (row.top + row.height <= y) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The rows that a window of the panel shows. */
export function rowsBetween(rows: Row[], top: number, bottom: number): Row[] {
  const first = firstBelow(rows, top);
  const rest = rows.slice(first);
  const after = rest.findIndex((row) => row.top >= bottom);
  return after < 0 ? rest : rest.slice(0, after);
}

export function rowAt(rows: Row[], y: number): Row | null {
  const row = rows[firstBelow(rows, y)];
  return row && y >= row.top ? row : null;
}

/** Starts and ends in the order of starts. */
export interface Times {
  start: ArrayLike<number>;
  end: ArrayLike<number>;
}

/** Index of the first start that is above a time. */
function firstAfter(start: ArrayLike<number>, time: number): number {
  let [low, high] = [0, start.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (start[middle]! <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Events before a time that are looked at for one that goes on at it: calls may lie in each other.
 */
const BACK = 64;

/**
 * The event at a time: the one that began last; else the nearest within `slack`; -1 if there is
 * none.
 */
export function eventAt({ start, end }: Times, time: number, slack: number): number {
  const after = firstAfter(start, time);
  for (let at = after - 1; at >= Math.max(0, after - BACK); at--) if (end[at]! > time) return at;
  const near = [after - 1, after].filter((at) => at >= 0 && at < start.length);
  const distance = (at: number) => (start[at]! > time ? start[at]! - time : time - end[at]!);
  const best = near.sort((a, b) => distance(a) - distance(b))[0];
  return best !== undefined && distance(best) <= slack ? best : -1;
}
