// Where the launches of a step are drawn: a launch begins behind those that it waits for, in the first lane that is free there.
import type { Flow } from './document';

export type Drawn = { from: number; to: number; lane: number };

/** The time of each launch if nothing but data orders them, ns, and its lane. */
export function placed(flow: Flow): Drawn[] {
  const drawn: Drawn[] = [];
  const ends: number[] = [];
  for (const launch of flow.launches) {
    const from = Math.max(0, ...launch.waits_for.map((before) => drawn[before]?.to ?? 0));
    const free = ends.findIndex((end) => end <= from);
    const lane = free < 0 ? ends.length : free;
    const to = from + launch.ns;
    ends[lane] = to;
    drawn.push({ from, to, lane });
  }
  return drawn;
}
