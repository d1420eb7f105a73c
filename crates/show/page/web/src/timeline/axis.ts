// Marks of the time axis: round times, all in one unit. Times of too many digits are counted from a
// base, which is shown once.
import type { Span } from './viewport';

export interface Mark {
  ns: number;
  text: string;
}

export interface Axis {
  /** Time that marks count from, ns; 0 where they show the time itself. */
  base: number;
  /** The base as text, empty where it is 0. */
  baseText: string;
  marks: Mark[];
}

const UNITS: [number, string][] = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']];
/** Digits of a mark that are read at a glance. */
const DIGITS = 6;

/**
 * A time with as many decimals as a step needs, in the unit of `largest`: `1.25 s` for steps of 50
 * ms.
 */
function exact(ns: number, step: number, largest: number): string {
  const [scale, unit] = UNITS.find(([scale]) => Math.max(largest, step) >= scale) ?? [1, 'ns'];
  const decimals = Math.max(0, Math.ceil(Math.log10(scale / step) - 1e-9));
  const text = (ns / scale).toFixed(decimals);
  const [whole = '', part] = text.split('.');
  return `${whole.replace(/\B(?=(\d{3})+$)/g, ',')}${part ? `.${part}` : ''}\u00a0${unit}`;
}

/** A time to the nanosecond. */
export function precise(ns: number): string {
  const step = [1e9, 1e6, 1e3].find((step) => ns % step === 0) ?? 1;
  return exact(ns, step, Math.max(ns, 1));
}

/** A time to a hundredth of a length at least: of what lies in a view or a span. */
export function moment(ns: number, size: number): string {
  const step = Math.max(1, 10 ** Math.floor(Math.log10(Math.max(size, 1) / 100)));
  return exact(Math.round(ns / step) * step, step, Math.max(ns, step));
}

/** Pixels for each mark. */
const MARK = 110;

/** Marks for which an axis has room. */
export function marksIn(width: number): number {
  return Math.max(1, Math.floor(width / MARK));
}

/** At most `most` marks, at multiples of 1, 2 or 5 times a power of ten. */
export function axis(view: Span, most: number): Axis {
  const size = view.to - view.from;
  const rough = Math.max(size / Math.max(1, most), 1);
  const power = 10 ** Math.floor(Math.log10(rough) + 1e-9);
  const step = power * ([1, 2, 5].find((factor) => factor * power >= rough * (1 - 1e-9)) ?? 10);
  const block = UNITS.findLast(([scale]) => scale >= 2 * size)?.[0] ?? 0;
  const isLong = view.to / step >= 10 ** DIGITS;
  const base = isLong && block > 0 ? Math.floor(view.from / block) * block : 0;
  const marks: Mark[] = [];
  for (let at = Math.ceil((view.from - base) / step); base + at * step <= view.to; at++) {
    marks.push({ ns: base + at * step, text: `${base > 0 ? '+' : ''}${exact(at * step, step, view.to - base)}` });
  }
  return { base, baseText: base > 0 ? exact(base, block, base) : '', marks };
}
