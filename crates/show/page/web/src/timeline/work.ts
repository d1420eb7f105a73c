// Where lanes have something, as far as their tiles tell: no view should be empty by accident.
import { levelOf, places, type Tile, type Tiles } from './tiles';
import type { Span } from './viewport';

/** The stretches of a tile that have something in them: its events, or its columns. */
function* stretches({ events, layers, from, columnNs }: Tile): Generator<Span> {
  if (events) {
    for (let at = 0; at < events.start.length; at++) yield { from: events.start[at]!, to: events.end[at]! };
    return;
  }
  const count = layers[0]?.shares.length ?? 0;
  for (let at = 0; at < count; at++) {
    if (layers.some(({ shares }) => (shares[at] ?? 0) > 0)) yield { from: from + at * columnNs, to: from + (at + 1) * columnNs };
  }
}

/** What lanes have in a view; null for what no tile tells. */
function* found(tiles: Tiles, lanes: string[], view: Span, width: number): Generator<Span | null> {
  for (const lane of lanes) {
    for (const place of places(view, levelOf(view, width))) {
      const all = tiles.content(lane, place);
      if (all.length === 0) yield null;
      for (const { tile, range } of all) {
        const [least, most] = [Math.max(view.from, range.from), Math.min(view.to, range.to)];
        for (const { from, to } of stretches(tile)) if (to >= least && from <= most) yield { from: Math.max(from, least), to: Math.min(to, most) };
      }
    }
  }
}

/** Whether lanes have nothing in a view; not where tiles are missing. */
export function isEmpty(tiles: Tiles, lanes: string[], view: Span, width: number): boolean {
  return found(tiles, lanes, view, width).next().done === true;
}

/**
 * The moment with something in a view that is nearest to a wanted one; null where the lanes are
 * empty, and `undefined` where that is not known, because tiles are missing.
 */
export function nearestWork(tiles: Tiles, lanes: string[], view: Span, width: number, wanted: number): number | null | undefined {
  let best: number | null = null;
  let isKnown = true;
  for (const span of found(tiles, lanes, view, width)) {
    if (span === null) {
      isKnown = false;
      continue;
    }
    const moment = Math.min(Math.max(wanted, span.from), span.to);
    if (best === null || Math.abs(moment - wanted) < Math.abs(best - wanted)) best = moment;
    if (best === wanted) break;
  }
  return best ?? (isKnown ? null : undefined);
}
