// What lies at a point of a lane, as far as its tiles tell.
import type { Basis, Lane } from './model';
import { eventAt } from './rows';
import { levelOf, places, type Tiles } from './tiles';
import type { Outline } from './draw';
import type { Span } from './viewport';

export interface Pointed {
  lane: Lane;
  event: (Outline & { name: string | null; use: string; basis: Basis }) | null;
  columns: (Span & { shares: { use: string; share: number }[] }) | null;
}

/** Pixels beside an event that count as it. */
const SLACK = 4;

export function pointedAt(tiles: Tiles, lane: Lane, view: Span, width: number, time: number, slack = SLACK): Pointed {
  const nothing = { lane, event: null, columns: null };
  const place = places({ from: time, to: time + 1 }, levelOf(view, width))[0];
  const drawn = place && tiles.content(lane.id, place).find(({ range }) => time >= range.from && time < range.to);
  if (!drawn) return nothing;
  const { events, layers, from, columnNs } = drawn.tile;
  if (events) {
    const at = eventAt(events, time, ((view.to - view.from) / width) * slack);
    if (at < 0) return nothing;
    const [start, end] = [events.start[at]!, events.end[at]!];
    return { ...nothing, event: { lane: lane.id, start, end, name: events.name[at]!, use: events.use[at]!, basis: events.basis[at]! } };
  }
  const column = Math.floor((time - from) / columnNs);
  const shares = layers.map(({ use, shares }) => ({ use, share: (shares[column] ?? 0) / 255 })).sort((a, b) => b.share - a.share);
  return { ...nothing, columns: { from: from + column * columnNs, to: from + (column + 1) * columnNs, shares } };
}
