// The timeline as the server tells it (docs/api.md), and lanes by the process that they belong to.
// Times are nanoseconds since the session's start.

import { byRank } from '../devices';
import type { Dim3 } from '../document';

export type LaneKind = 'device' | 'stream' | 'thread' | 'range';

export type Basis = 'measured' | 'modelled' | 'unknown';

/** Sums over the columns of a lane; uses that are missing are zero everywhere. */
export interface Columns {
  time: Record<string, number[]>;
  /**
   * The kernel that takes most time in the column, and how much; where all series were asked for.
   */
  top?: (number | null)[];
  top_ns?: number[];
}

export interface Events {
  start_ns: number[];
  end_ns: number[];
  use: string[];
  /** Keys of the answer's `names`. */
  name: (number | null)[];
  /** How its duration is known. */
  basis: Basis[];
  /** Of a collective: the group of its streams, and its number there. */
  collective: ([number, number] | null)[];
}

export interface Lane {
  id: string;
  kind: LaneKind;
  /** Index of its process. */
  process: number;
  device: string | null;
  device_uuid: string | null;
  name: string;
  start_ns: number;
  end_ns: number;
  count: number;
}

export interface LaneData extends Lane {
  columns: Columns | null;
  events: Events | null;
}

export interface Process {
  pid: number;
  rank: number | null;
  name: string;
  start_ns: number;
}

/** How a timeline is: each answer begins with it. */
export interface Head {
  schema: string;
  state: 'building' | 'ready' | 'unreadable' | 'deleted';
  /** What is wrong, or what is lacking. */
  message: string | null;
  version: string;
}

export interface Answer extends Head {
  progress: number | null;
  growing: boolean;
  start_ns: number;
  end_ns: number;
  from_ns: number;
  to_ns: number;
  column_ns: number;
  column_count: number;
  processes: Process[];
  phases: { process: number; kind: string; start_ns: number }[];
  names: Record<string, string>;
  lanes: LaneData[];
}

/** A figure, and how it is known. */
export interface Known {
  value: number;
  kind: 'measured' | 'computed' | 'predicted';
  low: number | null;
  high: number | null;
}

/** A process and its lanes. */
export interface Group {
  id: string;
  name: string;
  lanes: Lane[];
}

/** Groups in the order of ranks; `nameOf` may know a better name for a lane. */
export function groupsOf({ processes, lanes }: Pick<Answer, 'processes' | 'lanes'>, nameOf: (lane: Lane) => string = ({ name }) => name): Group[] {
  return processes
    .map((process, index) => ({ ...process, index }))
    .sort(byRank)
    .map(({ rank, pid, name, index }) => ({
      id: String(index),
      name: `${rank === null ? '' : `rank ${rank}, `}${name} (${pid})`,
      lanes: lanes.filter((lane) => lane.process === index).map((lane) => ({ ...lane, name: nameOf(lane) })),
    }))
    .filter((group) => group.lanes.length > 0);
}

/** Uses from the lower edge of a lane up: work first, then why there was none. */
export const USES = [
  'kernels', 'collectives', 'waiting', 'copies', 'unknown', 'range',
  'launching', 'allocating', 'transferring', 'synchronising', 'loading', 'capturing', 'other_calls', 'host_code', 'unrecorded',
] as const;

/** `apex.timeline.launch/1`: an event, or why there is none. */
export interface Found extends Head {
  event: Launch | null;
}

/** One event. What is not known is null. */
export interface Launch {
  lane: string;
  use: string;
  name: string | null;
  full_name: string | null;
  start_ns: Known;
  duration_ns: Known | null;
  bytes: number | null;
  call: {
    name: string;
    lane: string | null;
    pid: number;
    rank: number | null;
    thread: number | null;
    start_ns: number;
    duration_ns: number | null;
    /** From the call's return to the start of its work. */
    return_to_work_ns: number | null;
  } | null;
  kernel: {
    symbol: string | null;
    operation: string | null;
    grid: Dim3;
    block: Dim3;
    cluster: Dim3 | null;
    dynamic_shared_bytes: number;
    static_shared_bytes: number | null;
    registers: number | null;
    occupancy: number | null;
    limiters: string[];
    waves: number | null;
    launches: number;
    timed: { samples: number; mean_ns: number; p10_ns: number; median_ns: number; p90_ns: number; longest_ns: number } | null;
    prediction: { duration_ns: Known } | null;
  } | null;
  stack: { of_this_launch: boolean; frames: { function: string; file: string | null; line: number | null }[] } | null;
  range: string | null;
  collective: { group: number; ordinal: number; ranks: { rank: number | null; pid: number; lane: string; start_ns: number; duration_ns: number }[] } | null;
}

/** What a lane did in a span. */
export interface LaneFigures {
  lane: string;
  /** Time by use, ns. */
  time: Record<string, number>;
  /** What begins in the span. */
  count: number;
  /** What takes most of it: a key of `names`. */
  top: { name: number; time_ns: number }[];
}

export interface SpanFigures extends Head {
  from_ns: number;
  to_ns: number;
  names: Record<string, string>;
  lanes: LaneFigures[];
}
