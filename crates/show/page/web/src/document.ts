// The document `apex.page/1`, which docs/json.md describes: generated from the Rust types by
// crates/show/page/tests/typescript.rs. Times are nanoseconds, shares run from 0 to 1.

export type Dim3 = [number, number, number];

/** The document. */
export interface Document {
  schema: 'apex.page/1';
  apex_version: string;
  session: Session;
  verdict: string[];
  notes: string[];
  key: Key;
  accounts: Job;
  devices: Devices;
  advice: Judgement;
  kernels: Kernels;
  /** Kernels in other block sizes; empty where a server answers for any. */
  what_if: TriedKernel[];
  /** Their lines, as the CPU device counted them; empty where a server answers for any. */
  lines: LinesOfKernel[];
  places: Places;
  ranges: Ranges;
  /** Steps whose launches could run beside each other, the one with most time first. */
  flows: Flow[];
  memory: MemoryUse;
  fast: string[];
  machine: Machine;
}

/** The program's run, and its end. */
export interface Session {
  name: string;
  command: string | null;
  folder: string | null;
  /** Nanoseconds since 1970. */
  started_ns: number | null;
  wall_ns: number;
  on_cpu_device: boolean;
  /** Kernels that were timed: `off`, `sampled`, `all`. */
  timing: string | null;
  /** End of the program; `null` while it runs, or where that is not known. */
  exit: Exit | null;
  problems: string[];
}

/** The figures at the head of the page. */
export interface Key {
  /** Share of time in which kernels ran. */
  gpu_busy: Figure | null;
  /** Kernels that ran. */
  launches: number;
  /** Share of the time that all findings together would save. */
  saving_of_job: Figure | null;
  /** Share of the host's time that recording took. */
  overhead_share: Figure | null;
  lost_records: number;
  /** Duration of a step, on average. */
  step_ns: Figure | null;
  /** Intervals from the first launch of a step to that of the next. */
  step: Spread | null;
  /** Launches of a step. */
  step_launches: number | null;
}

/** The accounts of the job. */
export interface Job {
  /** `step`, `span`, or the name of the phase: what the times are of. */
  of: string;
  /** Divisor of the times: steps of all devices. */
  steps: number | null;
  span_ns: number;
  entries: Entry[];
}

/** The devices over time. */
export interface Devices {
  list: DeviceAccounts[];
  left_out: number;
}

/** The advice. */
export interface Judgement {
  findings: Card[];
  /** Names of the rules that looked and found nothing. */
  clear: string[];
  unjudged: Unjudged[];
  /** Rules that were run. */
  rules: number;
}

/** The kernels, those with the most GPU time first. */
export interface Kernels {
  list: Kernel[];
  left_out: LeftOut;
  /** GPU time of all of them; `null` where nothing was timed. */
  gpu_time_ns: Figure | null;
  /** Reason of each device for which nothing is predicted. */
  unpredicted: string[];
}

/** A kernel in other block sizes. */
export interface TriedKernel {
  /** Its identifier. */
  id: string;
  tried: WhatIf[];
}

/** The lines of a kernel. */
export interface LinesOfKernel {
  /** Its identifier. */
  id: string;
  /** Launches that were counted. */
  launches: number;
  /** The share of their instructions that was counted; `null` if all were. */
  sampled_share: number | null;
  /** PTX instructions of warps, of all lines. */
  warp_instructions: number;
  /** Counted lines that are not listed. */
  left_out: number;
  files: CodeFile[];
}

/** Launches by the place in the program. */
export interface Places {
  /** Frame that all call stacks have in common: the program. */
  root: Node;
  /** Call stacks that were read on sampled launches. */
  samples: number;
  /** The innermost lines that are not a library's, the most expensive first. */
  list: Site[];
  left_out: number;
  /** Where the host was while devices were idle; absent where it was not sampled. */
  idle?: Idle;
}

/** The ranges that the program names (NVTX). */
export interface Ranges {
  list: Range[];
  left_out: number;
}

/** A repeated step whose launches could run beside each other; times are computed from the kernels' means. */
export interface Flow {
  launches: FlowLaunch[];
  repeats: number;
  /** One launch after the other. */
  serial_ns: number;
  /** The longest chain of launches that wait for each other. */
  chain_ns: number;
  /** Side by side, within what the GPU's size allows. */
  concurrent_ns: number;
}

/** Allocations, copies and calls. */
export interface MemoryUse {
  /** By kind, as in the report's JSON. */
  kinds: Memory[];
  over_time: MemoryOverTime[];
  over_time_left_out: number;
  copies: Copies[];
  calls: Call[];
  calls_left_out: number;
  streams: Stream[];
  streams_left_out: number;
}

/** Where it ran. */
export interface Machine {
  devices: Device[];
  /** Kind of the devices' labels: `GPU` (CUDA ordinals or UUIDs), or `rank`. */
  device_heading: string;
  host: Host | null;
  processes: Process[];
  processes_left_out: number;
  recorder: Recorder;
  /** Its state meanwhile. */
  over_time: MachineOverTime | null;
  /** The energy that the program's devices took, in words. */
  energy: string[];
}

/** The way in which a program ended. */
export interface Exit {
  /** The program exited with this status. */
  code?: number;
  /** The program was ended by this signal. */
  signal?: number;
}

/** A value that says where it comes from; members without a value are left out. */
export interface Figure {
  value: number;
  provenance: Provenance;
  samples?: number;
  standard_error?: number;
  low?: number;
  high?: number;
}

/** Spread of durations: measured. */
export interface Spread {
  count: number;
  total_ns: number;
  mean_ns: number;
  p10_ns: number;
  median_ns: number;
  p90_ns: number;
  max_ns: number;
}

/** An account. Times are of the whole; the page divides them by steps. */
export interface Entry {
  id: Account;
  name: string;
  group: string;
  time_ns: Figure;
}

/** A device, as one process used it. */
export interface DeviceAccounts {
  /** Index into `machine.devices`. */
  device: number | null;
  /** CUDA ordinal of the device in the process. */
  ordinal: number | null;
  pid: number;
  rank: number | null;
  /** First launch, after the session's start. */
  start_ns: number;
  span_ns: number;
  launches: number;
  streams: number;
  accounts: Entry[];
  phases: PhaseAccounts[];
  iterations: Steps | null;
  over_time: SharesOverTime | null;
  gaps: LongGap[];
  long_gaps: number;
}

/** A finding. */
export interface Card {
  rule: string;
  slug: string;
  title: string;
  severity: Severity;
  within: string | null;
  summary: string;
  change: string;
  verify: string;
  confidence: Level;
  reason: string;
  saving: Saved;
  evidence: Value[];
  kernels: Concerned[];
  kernels_left_out: number;
}

export interface Unjudged {
  rule: string;
  slug: string;
  because: string;
}

/** A function in one launch configuration on one device. */
export interface Kernel {
  /** Index into the profile's kernels. */
  kernel: number;
  /** Identity for as long as the session lasts. */
  id: string;
  name: string;
  short_name: string;
  operation: string;
  types: string | null;
  tensor_cores: boolean | null;
  owner: string;
  device: number | null;
  /** Blocks of the grid. */
  grid: Dim3;
  /** Threads of a block. */
  block: Dim3;
  /** Blocks of a cluster; `Dim3::ZERO` without clusters. */
  cluster: Dim3;
  /** Dynamic shared memory of a block. */
  dynamic_shared_bytes: number;
  registers: number | null;
  static_shared_bytes: number | null;
  local_bytes: number | null;
  /** Most threads of a block of this kernel; `null` where that is not known. */
  max_threads_per_block: number | null;
  /** Runs, by calls and by graphs. */
  launches: number;
  by_graphs: number;
  captured: number;
  failed: number;
  gpu_total_ns: Figure | null;
  gpu_each: Spread | null;
  cpu: Spread;
  /** Launch calls in equal parts of the span of each device, summed over devices. */
  launches_over_time: number[];
  geometry: Geometry | null;
  place: string | null;
  /** Where it is launched from, the most frequent places first. */
  places: LaunchedFrom[];
  prediction: Predicted | null;
  counts: Counted | null;
}

/** Kernels that are not listed. */
export interface LeftOut {
  kernels: number;
  launches: number;
  gpu_time_ns: number;
}

/** A kernel in another configuration, or in its own. */
export interface WhatIf {
  grid: Dim3;
  block: Dim3;
  dynamic_shared_bytes: number;
  registers: number | null;
  /** Computed; `null` where the launch cannot run, or something is not known. */
  geometry: Geometry | null;
  /** Reason for which the launch cannot run. */
  impossible: string | null;
  prediction: Expected | null;
  /** Reason for which nothing is predicted of a launch that can run. */
  unpredicted: string | null;
}

/** A file that has lines of the kernel. */
export interface CodeFile {
  /** As the line table names it; empty for the kernel's PTX. */
  name: string;
  /** Reason for which some of its lines have no code beside them; `null` where all have. */
  no_text: string | null;
  rows: CodeLine[];
}

/** A frame with what it launches, that of the frames inside of it included. */
export interface Node {
  name: string;
  kind: Kind;
  file?: string;
  gpu_time_ns: number;
  launches: number;
  children?: Node[];
}

/** Launches from a place. */
export interface Site {
  place: string;
  file: string | null;
  launches: number;
  gpu_time_ns: number;
  samples: number;
  kernels: number;
}

/** Where the host was while devices were idle. */
export interface Idle {
  /** All idle time; below it accounts, and below these the frames of the thread that launches next. */
  root: IdleNode;
  /** Samples that were read. */
  samples: number;
  /**
   * Whether it is what all threads did, in a session of `apex attach`, which knows no device:
   * then times are those of threads, and what they did stands in place of accounts.
   */
  is_of_host: boolean;
}

export interface Range {
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
}

/** A launch of a step. */
export interface FlowLaunch {
  name: string;
  ns: number;
  /** The share of the GPU that it needs. */
  share: number;
  /** Whether the memory that it accesses is known; otherwise it keeps its order with all others. */
  known: boolean;
  /** Whether it is part of the longest chain. */
  in_chain: boolean;
  /** Earlier launches, by their places in the list. */
  waits_for: number[];
}

/** Memory of one kind, over all processes. */
export interface Memory {
  /** Kind of memory. */
  kind: string;
  /** Allocations. */
  allocations: number;
  /** Frees of known allocations. */
  frees: number;
  /** Bytes allocated in total. */
  allocated_bytes: number;
  /** Maximum bytes live at once in one process. */
  peak_bytes: number;
  /** Allocations still live at the end. */
  live: number;
  /** Bytes of these. */
  live_bytes: number;
  /** Allocations of a size that had been freed before in the same process: a pool would have reused that memory. */
  repeated: number;
  /** Allocations between the first and the last launch of their process. */
  among_launches: number;
  /** CPU time of allocations and frees. */
  cpu_ns: number;
}

/** Allocated memory of a process over time; bytes are measured. */
export interface MemoryOverTime {
  pid: number;
  rank: number | null;
  /** Pinned memory of the host, or memory of devices. */
  on_host: boolean;
  /** Where the first part begins, after the session's start. */
  start_ns: number;
  part_ns: number;
  peak_bytes: number;
  /** After the session's start. */
  peak_at_ns: number;
  /** Bytes of the peak whose place is that of other allocations of the same call and size. */
  inferred_bytes: number;
  most: number[];
  least: number[];
  allocated: number[];
  places: Place[];
  rest: number[];
}

export interface Copies {
  direction: CopyDirection;
  source: string;
  destination: string;
  asynchronous: boolean;
  count: number;
  bytes: number;
  cpu_ns: number;
}

export interface Call {
  name: string;
  count: number;
  failed: number;
  bytes: number;
  cpu: Spread;
}

export interface Stream {
  pid: number;
  device: number | null;
  id: number;
  kind: string;
  launches: number;
  graph_launches: number;
  transfers: number;
}

export interface Device {
  name: string;
  /** Label among the others: see `device_heading`. */
  label: string;
  uuid: string;
  /** Ordinal by which the program calls it; `null` if processes call it differently. */
  ordinal: number | null;
  compute_capability: [number, number] | null;
  sms: number;
  memory_bytes: number;
  /** 13000 is CUDA 13.0. */
  driver_version: number;
  max_warps_per_sm: number | null;
  max_registers_per_thread: number | null;
  max_threads_per_block: number | null;
  /** With the kernel's consent. */
  max_shared_bytes_per_block: number | null;
  /** Its peaks; `null` where its clocks are not known. */
  roofs: Roofs | null;
}

export interface Host {
  name: string;
  kernel: string;
  cpu: string;
  cpus: number;
  memory_bytes: number;
}

export interface Process {
  pid: number;
  rank: number | null;
  executable: string;
  start_ns: number;
  wall_ns: number;
  launches: number;
  ended: boolean;
}

/** Cost of recording, and what it missed. */
export interface Recorder {
  records: number;
  timings: number;
  recording_ns: number;
  timing_ns: number;
  dropped: number;
  overwritten: number;
}

/** State of the machine, with everything that ran on it; measured. */
export interface MachineOverTime {
  /** Begin of the first part, nanoseconds since the session's start. */
  from_ns: number;
  /** End of each part, likewise. */
  to_ns: number[];
  /** Whether the devices are known to be the program's. */
  joined: boolean;
  /** CPU time of sampling, as a share of one processor. */
  cost_share: number;
  devices: DeviceOverTime[];
  devices_left_out: number;
  host: MachineSeries[];
}

/** The provenance of a figure. */
export type Provenance = 'measured' | 'computed' | 'predicted';

/** An account by name. */
export type Account = 'kernels' | 'collectives' | 'waiting' | 'copies' | 'unknown' | IdleCause;

export interface PhaseAccounts {
  id: PhaseKind;
  name: string;
  launches: number;
  span_ns: number;
  accounts: Entry[];
}

/** The iterations of the steady state. */
export interface Steps {
  count: number;
  /** Iterations of the warm-up, before these. */
  warmup: number;
  /** Where the first one begins, after the session's start. */
  start_ns: number;
  duration: Spread;
}

/** Account of each part of the span. */
export interface SharesOverTime {
  part_ns: number;
  lines: Line[];
}

/** A long time without work. */
export interface LongGap {
  /** After the session's start. */
  start_ns: number;
  duration_ns: Figure;
  /** The host's activity meanwhile for most of it. */
  cause: IdleCause | null;
  before: string | null;
  after: string | null;
}

/** The importance of a finding in general; its cost in this job is in its `Saving`. */
export type Severity = 'info' | 'low' | 'medium' | 'high';

/** A step on a scale of three. */
export type Level = 'low' | 'medium' | 'high';

/** Saving of a change. */
export interface Saved {
  of_job: Figure | null;
  time_ns: Figure | null;
  /** Speedup of the job. */
  faster: number | null;
  unknown_because: string | null;
}

export interface Value {
  name: string;
  figure: Figure;
  unit: Unit;
  /** Where it should go. */
  goal: number | null;
  /** Direction of the goal: `increase` or `decrease`. */
  direction: string | null;
  /** Value that it is compared with, where that is no goal. */
  compared: string | null;
}

/** A kernel that has the fault. */
export interface Concerned {
  /** Index into the profile's kernels. */
  kernel: number;
  /** Its identifier, as in the table of kernels. */
  id: string | null;
  name: string;
  configuration: string;
  launches: number;
  change: string;
  place: string | null;
  evidence: Value[];
}

/** Computed from configuration, attributes and device. */
export interface Geometry {
  /** Theoretical occupancy. */
  occupancy: number;
  limiters: string[];
  /** Blocks that an SM holds at once. */
  blocks_per_sm: number;
  warps_per_block: number;
  max_warps_per_sm: number;
  /** Blocks that each resource alone would admit; those that do not limit are left out. */
  block_limits: Record<string, number>;
  blocks: number;
  waves: number;
  full_waves: number;
  /** Blocks of the last, partial wave; 0 if all are full. */
  tail_blocks: number;
  /** Blocks of a full wave. */
  wave_blocks: number;
  tail_effect: number;
  block_efficiency: number;
}

/** A place that launches it. */
export interface LaunchedFrom {
  place: string;
  /** Figure of the launches whose place was read; `null` where none was sampled. */
  share: number | null;
}

/** The models' prediction, and what was measured of the same. */
export interface Predicted {
  /** `null` where it was measured and it is not known what a launch executes. */
  duration_ns: Interval | null;
  achieved_occupancy: Interval;
  sm_utilisation: Interval;
  measured_ns: Figure | null;
  measured_over_predicted: number | null;
  /** Source of the prediction: `launch`, `kernel`, `code` or `work`. */
  basis: string;
  /** Features outside of what the models were trained on. */
  unfamiliar: string[];
  bound: Bounded | null;
  /** Work of a launch. */
  work: Work | null;
}

/** Counts of the CPU device. */
export interface Counted {
  launches: number;
  warp_instructions: number;
  active_threads: number;
  sectors_per_request: number | null;
  wavefronts_per_request: number | null;
  divergent_branches: number;
  /** The share of the instructions that was counted; `null` if all were. */
  sampled_share: number | null;
  /** Whether its lines were counted, too. */
  has_lines: boolean;
  /** The worst places of each fault. */
  hotspots: Spot[];
}

/** The models' prediction of it. */
export interface Expected {
  /** `null` where it was measured and it is not known what a launch executes. */
  duration_ns: Interval | null;
  achieved_occupancy: Interval;
  sm_utilisation: Interval;
  /** Source of the prediction: `launch`, `kernel`, `code` or `work`. */
  basis: string;
  /** How the duration is known that the change starts from; `null` where nothing is changed. */
  from: Provenance | null;
  /** Share of that duration; below 0 where the change costs. */
  saves: Interval | null;
  unfamiliar: string[];
}

/** A line. */
export interface CodeLine {
  line: number;
  /** The code; `null` where the session does not have it. */
  text: string | null;
  /** Its counts; `null` for a line that stands beside one that was counted. */
  counts: LineCounts | null;
  /** Faults there: `uncoalesced`, `bank_conflict`, `divergence`. */
  faults: string[];
}

export type Kind = 'other' | 'own' | 'library' | 'kernel' | 'smaller';

/** A frame with the idle time that the host spent in it and in the frames inside of it. */
export interface IdleNode {
  name: string;
  kind: Kind;
  file?: string;
  idle_ns: number;
  children?: IdleNode[];
}

export interface Place {
  name: string;
  peak_bytes: number;
  /** Its part of `most`. */
  bytes: number[];
}

/** Direction of a copy. */
export type CopyDirection = 'host_to_device' | 'device_to_host' | 'device_to_device' | 'peer_to_peer' | 'host_to_host' | 'other';

/** Computed from clocks and widths, in a nanosecond. */
export interface Roofs {
  warp_instructions: number;
  memory_bytes: number;
}

export interface DeviceOverTime {
  name: string;
  uuid: string;
  energy_j: number | null;
  max_sm_clock_mhz: number | null;
  slowdown_c: number | null;
  series: MachineSeries[];
}

/** A quantity over time. */
export interface MachineSeries {
  quantity: string;
  label: string;
  unit: MachineUnit;
  least: number;
  mean: number;
  most: number;
  /** Reading in each part; `null` where there is none. */
  means: (number | null)[];
  /** Least and most of each part, where parts are made of several samples. */
  leasts: (number | null)[] | null;
  mosts: (number | null)[] | null;
}

/** The host's activity while the device was idle. */
export type IdleCause = 'launching' | 'allocating' | 'transferring' | 'synchronising' | 'loading' | 'capturing' | 'other_calls' | 'host_code' | 'unrecorded';

/** A phase of a program's run, derived from the repetition of its launches. */
export type PhaseKind = 'startup' | 'warmup' | 'steady' | 'between' | 'end' | 'whole';

/** The share of an account in each part, in ten thousandths. */
export interface Line {
  id: Account;
  shares: number[];
}

/** Unit of a value in evidence. */
export type Unit = 'count' | 'share' | 'nanoseconds' | 'bytes';

/** A predicted value with its 90% prediction interval. */
export interface Interval {
  value: number;
  low: number;
  high: number;
}

/** Bound of the kernel. */
export interface Bounded {
  by: BoundBy;
  /** The part of the device that takes longest. */
  part: string;
  /** Share of the duration that this part takes at full rate. */
  share: number;
}

/** The work of a launch for a roofline, computed from PTX and arguments. */
export interface Work {
  /** Executed PTX instructions, per warp. */
  warp_instructions: number;
  /**
   * Bytes of the sectors that global loads and stores access, summed over requests: the maximum
   * traffic between L1 and L2.
   */
  global_bytes: number;
  /** Whether it depends on an assumption about values in memory. */
  assumed: boolean;
}

/** A place in the kernel's code where accesses or branches are bad. */
export interface Spot {
  /** `uncoalesced`, `bank_conflict` or `divergence`. */
  fault: string;
  /** Its source line, or the line of the PTX. */
  place: string;
  /** The PTX instruction. */
  instruction: string;
  /** Requests, or branches. */
  events: number;
  /** Sectors, wavefronts or branches. */
  total: number;
  /** Number of them that are excess, or divergent. */
  excess: number;
}

/** The counts of a line. */
export interface LineCounts {
  atomic_turns: number;
  branches: number;
  divergent_branches: number;
  global_excess: number;
  global_requests: number;
  global_sectors: number;
  shared_excess: number;
  shared_requests: number;
  shared_wavefronts: number;
  thread_instructions: number;
  warp_instructions: number;
}

/** What a quantity is counted in. */
export type MachineUnit = 'watts' | 'megahertz' | 'celsius' | 'bytes' | 'bytes_per_second' | 'share' | 'cpus' | 'count';

/** The resource that bounds a kernel. */
export type BoundBy = 'memory' | 'compute' | 'latency' | 'launch' | 'tail';
