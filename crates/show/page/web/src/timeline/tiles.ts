// What is known of the lanes at each zoom. A tile is COLUMNS columns of one lane; a column of level
// n is 2^n ns long, so that tiles of one level stand side by side and two of them lie in one of the
// next. While a tile is fetched, what is known of its time at other levels is drawn instead. The
// store is bounded: tiles that were not drawn for longest are dropped, but never the tile of the
// whole session.
import { rangeText } from '../ranges';
import type { Answer, Basis, LaneData } from './model';
import { matcher } from './search';
import type { Span } from './viewport';

export const COLUMNS = 512;
/** Tiles that are kept: each takes some 10 KB. */
const MOST = 3000;
/** Levels that are searched for something to draw in place of a tile. */
const COARSER = 40;
const FINER = 3;

/** The content of one lane in one tile. */
export interface Tile {
  lane: string;
  from: number;
  /** Length of a column. */
  columnNs: number;
  /**
   * Shares of each column in 255ths by use, from the lower edge up; none where there are events.
   */
  layers: { use: string; shares: Uint8Array }[];
  /** Shares of what was searched for, where it takes most of the time. */
  found: Uint8Array | null;
  events: TileEvents | null;
  /** The search that it belongs to, and the version of the session. */
  search: string;
  version: string;
}

export interface TileEvents {
  start: Float64Array;
  end: Float64Array;
  use: string[];
  name: (string | null)[];
  found: boolean[];
  basis: Basis[];
  /** `group/ordinal`, which collectives of all ranks share. */
  collective: (string | null)[];
}

/** Where a tile stands. */
export interface Place {
  level: number;
  index: number;
}

export const columnOf = (level: number) => 2 ** level;
export const tileNs = (level: number) => columnOf(level) * COLUMNS;

export function spanOfPlace({ level, index }: Place): Span {
  return { from: index * tileNs(level), to: (index + 1) * tileNs(level) };
}

/** The least level whose columns are a pixel wide, or up to two. */
export function levelOf(view: Span, width: number): number {
  return Math.max(0, Math.ceil(Math.log2((view.to - view.from) / Math.max(1, width)) - 1e-9));
}

/** The least level of which one tile holds the whole session. */
export function wholeLevel(end: number): number {
  let level = 0;
  while (tileNs(level) < end) level++;
  return level;
}

/** Tiles of a level that a view touches. */
export function places(view: Span, level: number): Place[] {
  const first = Math.floor(view.from / tileNs(level));
  const last = Math.max(first, Math.ceil(view.to / tileNs(level)) - 1);
  return Array.from({ length: last - first + 1 }, (_, at) => ({ level, index: first + at }));
}

function shares(ns: number[], columnNs: number): Uint8Array {
  return Uint8Array.from(ns, (time) => (time > 0 ? Math.max(1, Math.min(255, Math.round((time / columnNs) * 255))) : 0));
}

/** Of ranges, frameworks encode fields in the name. */
const readable = (use: string, name: string | null) => (name !== null && use === 'range' ? rangeText(name) : name);

/** The content of a lane in an answer. */
export function tileOf(answer: Answer, lane: LaneData, order: readonly string[], search: string): Tile {
  const isFound = matcher(search);
  const nameOf = (key: number | null | undefined) => (key === null || key === undefined ? null : (answer.names[key] ?? null));
  const { columns, events } = lane;
  const uses = Object.keys(columns?.time ?? {}).sort((a, b) => order.indexOf(a) - order.indexOf(b));
  return {
    lane: lane.id,
    from: answer.from_ns,
    columnNs: answer.column_ns,
    layers: uses.map((use) => ({ use, shares: shares(columns!.time[use]!, answer.column_ns) })),
    found: columns?.top && search ? shares(columns.top.map((key, at) => (isFound(nameOf(key) ?? '') ? (columns.top_ns?.[at] ?? 0) : 0)), answer.column_ns) : null,
    events: events && {
      start: Float64Array.from(events.start_ns),
      end: Float64Array.from(events.end_ns),
      use: events.use,
      name: events.name.map((key, at) => readable(events.use[at]!, nameOf(key))),
      found: events.name.map((key) => isFound(nameOf(key) ?? '')),
      basis: events.basis,
      collective: events.collective.map((pair) => (pair ? pair.join('/') : null)),
    },
    search,
    version: answer.version,
  };
}

/** A tile that is drawn, and the time of it that is. */
export interface Drawn {
  tile: Tile;
  range: Span;
}

export class Tiles {
  /** In the order in which they were drawn last. */
  #tiles = new Map<string, Tile>();
  /** Level of the tile that holds the whole session, which is never dropped. */
  whole = 0;

  constructor(readonly most = MOST) {}

  get size(): number {
    return this.#tiles.size;
  }

  #key(lane: string, { level, index }: Place): string {
    return `${lane} ${level} ${index}`;
  }

  put(place: Place, tile: Tile) {
    const key = this.#key(tile.lane, place);
    this.#tiles.delete(key);
    this.#tiles.set(key, tile);
    if (this.#tiles.size <= this.most) return;
    for (const old of this.#tiles.keys()) {
      if (this.#tiles.size <= this.most) break;
      if (!old.includes(` ${this.whole} `)) this.#tiles.delete(old);
    }
  }

  get(lane: string, place: Place): Tile | undefined {
    return this.#tiles.get(this.#key(lane, place));
  }

  all(): Iterable<Tile> {
    return this.#tiles.values();
  }

  /** Whether a tile is there and still true. */
  has(lane: string, place: Place, search: string, version: string): boolean {
    const tile = this.get(lane, place);
    return tile?.search === search && tile.version === version;
  }

  /** Best content for a tile: itself, finer tiles of all of it, or a part of a coarser one. */
  content(lane: string, place: Place): Drawn[] {
    const range = spanOfPlace(place);
    const own = this.#touch(lane, place);
    if (own) return [{ tile: own, range }];
    for (let up = 1; up <= FINER; up++) {
      if (place.level < up) break;
      const count = 2 ** up;
      const parts = Array.from({ length: count }, (_, at) => ({ level: place.level - up, index: place.index * count + at }));
      const tiles = parts.map((part) => this.get(lane, part));
      if (tiles.every((tile) => tile)) return parts.map((part, at) => ({ tile: tiles[at]!, range: spanOfPlace(part) }));
    }
    for (let up = 1; up <= COARSER; up++) {
      const tile = this.get(lane, { level: place.level + up, index: Math.floor(place.index / 2 ** up) });
      if (tile) return [{ tile, range }];
    }
    return [];
  }

  #touch(lane: string, place: Place): Tile | undefined {
    const key = this.#key(lane, place);
    const tile = this.#tiles.get(key);
    if (tile) {
      this.#tiles.delete(key);
      this.#tiles.set(key, tile);
    }
    return tile;
  }
}
