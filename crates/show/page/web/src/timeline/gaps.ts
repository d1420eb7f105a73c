// The longest gaps of the devices, as the document lists them.
import type { Document } from '../document';
import { time, words } from '../format';
import type { Answer } from './model';
import type { Span } from './viewport';

export interface Gap extends Span {
  text: string;
}

/** Gaps that are offered. */
const MOST = 20;

export function gapsOf(doc: Document, answer: Answer | null): Gap[] {
  const several = (answer?.processes.length ?? 0) > 1;
  const all = doc.devices.list.flatMap(({ gaps, rank, pid }) =>
    gaps.map((gap) => {
      const who = several ? `, ${rank === null ? `process ${pid}` : `rank ${rank}`}` : '';
      const why = gap.cause ? `, ${words(gap.cause)}` : '';
      return { from: gap.start_ns, to: gap.start_ns + gap.duration_ns.value, text: `${time(gap.duration_ns.value)} at ${time(gap.start_ns)}${who}${why}` };
    }),
  );
  return all.sort((a, b) => b.to - b.from - (a.to - a.from)).slice(0, MOST);
}
