// The lines of a kernel: what is shown of each, and which are the worst.
import type { LinesOfKernel, LineCounts } from '../document';
import { count, percent } from '../format';

export interface Shown {
  /** What tells it from the others. */
  key: string;
  /** The file without its folders, and the line. */
  place: string;
  line: number;
  text: string | null;
  counts: LineCounts | null;
  /** Share of the kernel's instructions. */
  share: number;
  /** What is bad there, in words. */
  faults: string[];
  /** Lines that are not shown before it. */
  skipped: number;
}

export interface Jump {
  key: string;
  text: string;
}

const FAULTS: Record<string, (counts: LineCounts) => string> = {
  uncoalesced: ({ global_excess: excess, global_sectors: all }) => `uncoalesced: ${count(excess)} of ${count(all)} sectors are excessive`,
  bank_conflict: ({ shared_excess: excess, shared_wavefronts: all }) => `bank conflicts: ${count(excess)} of ${count(all)} wavefronts are excessive`,
  divergence: ({ divergent_branches: divergent, branches: all }) => `divergence: ${count(divergent)} of ${count(all)} branches`,
};
const EXCESS: Record<string, keyof LineCounts> = { uncoalesced: 'global_excess', bank_conflict: 'shared_excess', divergence: 'divergent_branches' };
const NAMES: Record<string, string> = { uncoalesced: 'most uncoalesced', bank_conflict: 'most bank conflicts', divergence: 'most divergence' };
/** Lines that execute most, of those that one can jump to. */
const BUSIEST = 3;

/** The lines of one file. */
export function rowsOf(lines: LinesOfKernel, file: LinesOfKernel['files'][number]): Shown[] {
  const name = file.name.split('/').pop() ?? '';
  let last = file.rows[0] ? file.rows[0].line - 1 : 0;
  return file.rows.map(({ line, text, counts, faults }) => {
    const skipped = line - last - 1;
    last = line;
    return {
      key: `${file.name}:${line}`,
      place: name === '' ? `PTX ${line}` : `${name}:${line}`,
      line,
      text,
      counts,
      share: counts ? counts.warp_instructions / Math.max(1, lines.warp_instructions) : 0,
      faults: counts ? faults.map((fault) => FAULTS[fault]?.(counts) ?? fault) : [],
      skipped,
    };
  });
}

/** Counted lines of all files, those that execute most first. */
export function worstFirst(lines: LinesOfKernel): Shown[] {
  const all = lines.files.flatMap((file) => rowsOf(lines, file)).filter(({ counts }) => counts !== null);
  return all.sort((a, b) => b.share - a.share).map((row) => ({ ...row, skipped: 0 }));
}

/** Where one may want to look first: the lines that execute most, and the worst of each fault. */
export function jumps(lines: LinesOfKernel): Jump[] {
  const worst = worstFirst(lines);
  const busiest = worst.slice(0, BUSIEST).map(({ key, place, share }) => ({ key, text: `${place} · ${percent(share)} of instructions` }));
  const rows = lines.files.flatMap((file) => file.rows.map((row) => ({ ...row, file: file.name })));
  const faulty = Object.keys(FAULTS).flatMap((fault) => {
    const of = (counts: LineCounts | null) => counts?.[EXCESS[fault]!] ?? 0;
    const row = rows.filter(({ faults }) => faults.includes(fault)).sort((a, b) => of(b.counts) - of(a.counts))[0];
    const key = row && `${row.file}:${row.line}`;
    const place = worst.find((line) => line.key === key)?.place;
    return key && place ? [{ key, text: `${place} · ${NAMES[fault]}` }] : [];
  });
  return [...busiest, ...faulty];
}
