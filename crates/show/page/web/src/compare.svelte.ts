// What differs between sessions, as the server of `apex dashboard` says it (apex.diff/2 in
// docs/json.md), and which advice was marked as done.
import type { Provenance } from './document';
import type { Session } from './server.svelte';

/** A figure as the report's JSON has it: what is not known is null. */
export interface Figure {
  value: number;
  provenance: Provenance;
  samples: number;
  standard_error: number | null;
  low: number | null;
  high: number | null;
}

/** Standard errors from the mean to the ends of its 90% interval. */
const NINETY_PERCENT = 1.645;

/** The 90% interval of a figure; null where it has none. */
export function bounds({ value, standard_error, low, high }: Figure): [number, number] | null {
  if (low !== null && high !== null) return [low, high];
  return standard_error === null ? null : [Math.max(0, value - NINETY_PERCENT * standard_error), value + NINETY_PERCENT * standard_error];
}

export interface Change {
  before: Figure | null;
  after: Figure | null;
  ratio: number | null;
  /** Whether the difference is more than chance; null where that cannot be told. */
  significant: boolean | null;
  runs: [number[], number[]];
}

export interface KernelChange {
  name: string;
  presence: 'both' | 'added' | 'removed';
  launches: Change;
  duration_ns: Change;
  total_ns: Change;
}

export interface Followed {
  rule: string;
  slug: string;
  title: string;
  state: 'gone' | 'still' | 'unjudged';
  promised_ns: Figure | null;
  achieved_ns: Figure | null;
  kept: 'kept' | 'less' | 'more' | null;
}

type Counts = 'warp_instructions' | 'sectors' | 'excessive_sectors' | 'wavefronts' | 'bank_conflicts' | 'divergent_branches';

export interface Comparison {
  per: 'step' | 'run';
  step_ns: Change | null;
  launches: Change;
  span_ns: Change;
  gpu_time_ns: Change;
  gpu_busy: Change;
  launch_cpu_ns: Change;
  copies: Change;
  copied_bytes: Change;
  accounts: { account: string; time_ns: Change }[];
  counts: Record<Counts, Change> | null;
  followed: Followed[];
  together: { findings: number; promised_ns: Figure; achieved_ns: Figure; kept: 'kept' | 'less' | 'more' } | null;
  new_findings: { rule: string; slug: string; title: string }[];
  functions: KernelChange[];
}

export interface Compared {
  verdict: string;
  comparison: Comparison;
}

/** Compares sessions; an error says why there is no comparison. */
export async function compare(before: string[], after: string[], filters: Record<string, string>, signal: AbortSignal): Promise<Compared> {
  const given = Object.entries({ before: before.join(','), after: after.join(','), ...filters }).filter(([, value]) => value);
  const response = await fetch(`/api/v1/compare?${new URLSearchParams(given)}`, { signal });
  if (!response.ok) throw new Error((await response.text()).trim());
  return (await response.json()) as Compared;
}

const KEY = 'apex.done';

function stored(): Record<string, string[]> {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? '{}') as Record<string, string[]>;
  } catch {
    return {};
  }
}

/**
 * Rules whose advice was marked as done, by the session that has the finding. This browser
 * remembers them.
 */
class Done {
  #marks: Record<string, string[]> = $state.raw(stored());

  of(session: string): string[] {
    return this.#marks[session] ?? [];
  }

  toggle(session: string, rule: string) {
    const rules = this.of(session);
    this.#marks = { ...this.#marks, [session]: rules.includes(rule) ? rules.filter((one) => one !== rule) : [...rules, rule] };
    try {
      localStorage.setItem(KEY, JSON.stringify(this.#marks));
    } catch {
      // Then it is forgotten with this page.
    }
  }
}

export const done = new Done();

/**
 * The newest session of the same command that was begun before this one and has advice that was
 * marked as done.
 */
export function marked(sessions: Session[], of: Session | undefined): Session | undefined {
  const earlier = sessions.filter((one) => one.command === of?.command && (one.started_ns ?? 0) < (of?.started_ns ?? 0));
  return earlier.filter((one) => done.of(one.id).length > 0).sort((a, b) => (b.started_ns ?? 0) - (a.started_ns ?? 0))[0];
}

/** The next session of the same command. */
export function next(sessions: Session[], of: Session | undefined): Session | undefined {
  const later = sessions.filter((one) => one.command === of?.command && (one.started_ns ?? 0) > (of?.started_ns ?? Infinity));
  return later.sort((a, b) => (a.started_ns ?? 0) - (b.started_ns ?? 0))[0];
}
