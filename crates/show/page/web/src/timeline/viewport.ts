// The part of the session that the timeline shows: how it is panned and zoomed. Times are
// nanoseconds since the session's start. A view is never narrower than SHORTEST, and never leaves
// the session.

export interface Span {
  from: number;
  to: number;
}

/** Shortest time that fills the panel, ns. */
export const SHORTEST = 200;

export const length = (span: Span) => span.to - span.from;

/** The view that is nearest to a wanted one and lies in the session. */
export function within(wanted: Span, whole: Span): Span {
  const all = Math.max(length(whole), SHORTEST);
  const size = Math.min(Math.max(length(wanted), SHORTEST), all);
  const from = Math.min(Math.max(wanted.from, whole.from), whole.from + all - size);
  return { from, to: from + size };
}

/**
 * Zooms so that the time at a share of the width stays where it is; a factor above 1 shows more
 * time.
 */
export function zoomed(view: Span, factor: number, at: number, whole: Span): Span {
  const size = Math.min(Math.max(length(view) * factor, SHORTEST), Math.max(length(whole), SHORTEST));
  const fixed = view.from + length(view) * at;
  const from = fixed - size * at;
  return within({ from, to: from + size }, whole);
}

/** Moves the view by a share of its length. */
export function panned(view: Span, share: number, whole: Span): Span {
  const by = length(view) * share;
  return within({ from: view.from + by, to: view.to + by }, whole);
}

/** A view that shows a span with some room on both sides. */
export function around(span: Span, whole: Span): Span {
  const room = Math.max(length(span) * 0.25, SHORTEST / 2);
  return within({ from: span.from - room, to: span.to + room }, whole);
}

/** A view of the same length that has a time in it, unmoved where it has it already. */
export function reaching(view: Span, time: number, whole: Span): Span {
  const room = length(view) * 0.1;
  if (time >= view.from + room && time <= view.to - room) return view;
  const from = time - length(view) / 2;
  return within({ from, to: from + length(view) }, whole);
}

/** Share of a session that work takes at least for all of it to be shown at first. */
const MOST_OF_IT = 0.7;

/**
 * What is shown at first: the steady state, where there is one; else what lies between the first and
 * the last work, unless that is most of the session.
 */
export function opening(whole: Span, steady: number[], work: Span[]): Span {
  if (work.length === 0) return whole;
  const last = Math.max(...work.map(({ to }) => to));
  const first = steady.length > 0 ? Math.min(...steady) : Math.min(...work.map(({ from }) => from));
  const wanted = { from: first, to: last };
  if (!(last > first) || length(wanted) >= MOST_OF_IT * length(whole)) return whole;
  const room = 0.02 * length(wanted);
  return { from: Math.max(whole.from, first - room), to: Math.min(whole.to, last + room) };
}

/** A span as the address has it: `1200-3400`; nonsense is none. */
export function spanOf(text: string): Span | null {
  const found = /^(\d{1,15})-(\d{1,15})$/.exec(text);
  if (!found) return null;
  const [from, to] = [Number(found[1]), Number(found[2])];
  return to > from ? { from, to } : null;
}

export function spanText(span: Span): string {
  return `${Math.round(span.from)}-${Math.round(span.to)}`;
}
