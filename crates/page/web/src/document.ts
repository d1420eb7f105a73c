// The document `apex.page/1`, as docs/json.md describes it. Times are nanoseconds, shares run from 0 to 1.

export type Provenance = 'measured' | 'computed' | 'predicted';

export interface Figure {
  value: number;
  provenance: Provenance;
  samples?: number;
  standard_error?: number;
  low?: number;
  high?: number;
}

export interface Spread {
  count: number;
  total_ns: number;
  mean_ns: number;
  p10_ns: number;
  median_ns: number;
  p90_ns: number;
  max_ns: number;
}

export interface Entry {
  id: string;
  name: string;
  group: 'busy' | 'idle' | 'unknown';
  time_ns: Figure;
}

export interface Line {
  id: string;
  /** In ten thousandths of a part. */
  shares: number[];
}

export interface Gap {
  start_ns: number;
  duration_ns: Figure;
  cause: string | null;
  before: string | null;
  after: string | null;
}

export interface Phase {
  id: string;
  name: string;
  launches: number;
  span_ns: number;
  accounts: Entry[];
}

export interface Activity {
  device: number | null;
  pid: number;
  rank: number | null;
  start_ns: number;
  span_ns: number;
  launches: number;
  streams: number;
  accounts: Entry[];
  phases: Phase[];
  iterations: { count: number; warmup: number; start_ns: number; duration: Spread } | null;
  over_time: { part_ns: number; lines: Line[] } | null;
  gaps: Gap[];
  long_gaps: number;
}

export type Unit = 'count' | 'share' | 'nanoseconds' | 'bytes';

export interface Value {
  name: string;
  figure: Figure;
  unit: Unit;
  goal: number | null;
  direction: 'increase' | 'decrease' | null;
  compared: string | null;
}

export interface Finding {
  rule: string;
  slug: string;
  title: string;
  severity: 'info' | 'low' | 'medium' | 'high';
  within: string | null;
  summary: string;
  change: string;
  verify: string;
  confidence: 'low' | 'medium' | 'high';
  reason: string;
  saving: { of_job: Figure | null; time_ns: Figure | null; faster: number | null; unknown_because: string | null };
  evidence: Value[];
  kernels: {
    kernel: number;
    id: string | null;
    name: string;
    configuration: string;
    launches: number;
    change: string;
    place: string | null;
    evidence: Value[];
  }[];
  kernels_left_out: number;
}

export interface Interval {
  value: number;
  low: number;
  high: number;
}

export type Dim3 = [number, number, number];

/** How a launch lies on its device: computed. */
export interface Geometry {
  occupancy: number;
  limiters: string[];
  blocks_per_sm: number;
  warps_per_block: number;
  max_warps_per_sm: number;
  /** Blocks of an SM that each resource alone would admit. */
  block_limits: Record<string, number>;
  blocks: number;
  waves: number;
  full_waves: number;
  tail_blocks: number;
  wave_blocks: number;
  tail_effect: number;
  block_efficiency: number;
}

export interface Kernel {
  kernel: number;
  id: string;
  name: string;
  short_name: string;
  operation: string;
  types: string | null;
  tensor_cores: boolean | null;
  owner: string;
  device: number | null;
  grid: Dim3;
  block: Dim3;
  cluster: Dim3;
  dynamic_shared_bytes: number;
  registers: number | null;
  static_shared_bytes: number | null;
  local_bytes: number | null;
  max_threads_per_block: number | null;
  launches: number;
  by_graphs: number;
  captured: number;
  failed: number;
  gpu_total_ns: Figure | null;
  gpu_each: Spread | null;
  cpu: Spread;
  /** Launch calls in equal parts of the span; empty where there were none. */
  launches_over_time: number[];
  geometry: Geometry | null;
  place: string | null;
  places: { place: string; share: number | null }[];
  prediction: {
    duration_ns: Interval | null;
    achieved_occupancy: Interval;
    sm_utilisation: Interval;
    measured_ns: Figure | null;
    measured_over_predicted: number | null;
    basis: string;
    unfamiliar: string[];
    bound: { by: 'memory' | 'compute' | 'latency' | 'launch' | 'tail'; part: string; share: number } | null;
    work: { warp_instructions: number; global_bytes: number; assumed: boolean } | null;
  } | null;
  counts: {
    launches: number;
    warp_instructions: number;
    active_threads: number;
    sectors_per_request: number | null;
    wavefronts_per_request: number | null;
    divergent_branches: number;
    sampled_share: number | null;
    /** Whether its lines were counted. */
    has_lines: boolean;
    hotspots: { fault: string; place: string; instruction: string; events: number; total: number; excess: number }[];
  } | null;
}

/** A kernel in another configuration, or in its own: what `/kernels/ID/what-if` answers. */
export interface WhatIf {
  grid: Dim3;
  block: Dim3;
  dynamic_shared_bytes: number;
  registers: number | null;
  geometry: Geometry | null;
  impossible: string | null;
  prediction: {
    duration_ns: Interval | null;
    achieved_occupancy: Interval;
    sm_utilisation: Interval;
    basis: string;
    from: Provenance | null;
    saves: Interval | null;
    unfamiliar: string[];
  } | null;
  unpredicted: string | null;
}

/** What one line of a kernel did. */
export interface LineCounts {
  warp_instructions: number;
  thread_instructions: number;
  global_requests: number;
  global_sectors: number;
  global_excess: number;
  shared_requests: number;
  shared_wavefronts: number;
  shared_excess: number;
  atomic_turns: number;
  branches: number;
  divergent_branches: number;
}

/** The lines of a kernel: what `/kernels/ID/lines` answers. */
export interface KernelLines {
  id: string;
  launches: number;
  sampled_share: number | null;
  warp_instructions: number;
  left_out: number;
  files: {
    /** Empty for the PTX. */
    name: string;
    no_text: string | null;
    rows: { line: number; text: string | null; counts: LineCounts | null; faults: string[] }[];
  }[];
}

export interface Node {
  name: string;
  kind: 'other' | 'own' | 'library' | 'kernel' | 'smaller';
  file?: string;
  gpu_time_ns: number;
  launches: number;
  children?: Node[];
}

/** A frame with the idle time that the host spent in it and in the frames inside of it. */
export interface IdleNode {
  name: string;
  kind: Node['kind'];
  file?: string;
  idle_ns: number;
  children?: IdleNode[];
}

export interface Document {
  schema: 'apex.page/1';
  apex_version: string;
  session: {
    name: string;
    command: string | null;
    folder: string | null;
    started_ns: number | null;
    wall_ns: number;
    on_cpu_device: boolean;
    timing: string | null;
    /** How the program ended; null while it runs, or where that is not known. */
    exit: { code?: number; signal?: number } | null;
    problems: string[];
  };
  verdict: string[];
  notes: string[];
  key: {
    gpu_busy: Figure | null;
    launches: number;
    saving_of_job: Figure | null;
    overhead_share: Figure | null;
    lost_records: number;
    step: Spread | null;
    step_ns: Figure | null;
    step_launches: number | null;
  };
  accounts: { of: string; steps: number | null; span_ns: number; entries: Entry[] };
  devices: { list: Activity[]; left_out: number };
  advice: {
    findings: Finding[];
    clear: string[];
    unjudged: { rule: string; slug: string; because: string }[];
    rules: number;
  };
  kernels: {
    list: Kernel[];
    left_out: { kernels: number; launches: number; gpu_time_ns: number };
    gpu_time_ns: Figure | null;
    unpredicted: string[];
  };
  /** Kernels in other block sizes; empty where a server answers for any. */
  what_if: { id: string; tried: WhatIf[] }[];
  /** What lines of kernels did; empty where a server answers for any. */
  lines: KernelLines[];
  places: {
    root: Node;
    samples: number;
    list: { place: string; file: string | null; launches: number; gpu_time_ns: number; samples: number; kernels: number }[];
    left_out: number;
    /** Where the host was while devices were idle, where it was sampled. */
    idle?: { root: IdleNode; samples: number };
  };
  ranges: {
    list: {
      name: string;
      domain: string;
      depth: number;
      is_process_wide: boolean;
      count: number;
      host_ns: number;
      launches: number;
      copies: number;
      gpu_time_ns: Figure | null;
      idle_ns: Figure | null;
    }[];
    left_out: number;
  };
  memory: {
    kinds: {
      kind: string;
      allocations: number;
      frees: number;
      allocated_bytes: number;
      peak_bytes: number;
      live: number;
      live_bytes: number;
      repeated: number;
      among_launches: number;
      cpu_ns: number;
    }[];
    over_time: MemoryOverTime[];
    over_time_left_out: number;
    copies: {
      direction: string;
      source: string;
      destination: string;
      asynchronous: boolean;
      count: number;
      bytes: number;
      cpu_ns: number;
    }[];
    calls: { name: string; count: number; failed: number; bytes: number; cpu: Spread }[];
    calls_left_out: number;
    streams: {
      pid: number;
      device: number | null;
      id: number;
      kind: string;
      launches: number;
      graph_launches: number;
      transfers: number;
    }[];
    streams_left_out: number;
  };
  fast: string[];
  machine: {
    devices: {
      name: string;
      uuid: string;
      /** By which the program calls it; null where processes call it differently. */
      ordinal: number | null;
      compute_capability: [number, number] | null;
      sms: number;
      memory_bytes: number;
      driver_version: number;
      max_warps_per_sm: number | null;
      max_registers_per_thread: number | null;
      max_threads_per_block: number | null;
      max_shared_bytes_per_block: number | null;
      /** What it does at most in a nanosecond. */
      roofs: { warp_instructions: number; memory_bytes: number } | null;
    }[];
    host: { name: string; kernel: string; cpu: string; cpus: number; memory_bytes: number } | null;
    processes: {
      pid: number;
      rank: number | null;
      executable: string;
      start_ns: number;
      wall_ns: number;
      launches: number;
      ended: boolean;
    }[];
    processes_left_out: number;
    recorder: {
      records: number;
      timings: number;
      recording_ns: number;
      timing_ns: number;
      dropped: number;
      overwritten: number;
    };
    over_time: MachineOverTime | null;
  };
}

export type MachineUnit = 'watts' | 'joules' | 'megahertz' | 'celsius' | 'bytes' | 'bytes_per_second' | 'share' | 'cpus' | 'count';

export interface MachineSeries {
  quantity: string;
  label: string;
  unit: MachineUnit;
  least: number;
  mean: number;
  most: number;
  means: (number | null)[];
  leasts: (number | null)[] | null;
  mosts: (number | null)[] | null;
}

export interface MachineOverTime {
  from_ns: number;
  to_ns: number[];
  joined: boolean;
  cost_share: number;
  devices: {
    name: string;
    uuid: string;
    energy_j: number | null;
    max_sm_clock_mhz: number | null;
    slowdown_c: number | null;
    series: MachineSeries[];
  }[];
  devices_left_out: number;
  host: MachineSeries[];
}

/**
 * What a process had allocated on devices, or of pinned host memory: lists have an entry for each
 * part of its time.
 */
export interface MemoryOverTime {
  pid: number;
  rank: number | null;
  on_host: boolean;
  start_ns: number;
  part_ns: number;
  peak_bytes: number;
  peak_at_ns: number;
  /** Bytes of the peak whose place is that of other allocations of their call and size. */
  inferred_bytes: number;
  most: number[];
  least: number[];
  allocated: number[];
  /** Add up, with `rest`, to `most`. */
  places: { name: string; peak_bytes: number; bytes: number[] }[];
  rest: number[];
}
