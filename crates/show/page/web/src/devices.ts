// Names of GPUs and of those who use them. A GPU is called by the ordinal that the program uses
// (`cuda:1`); where ranks see different GPUs under one ordinal, by the rank or the UUID as well.
import type { DeviceAccounts, Document } from './document';

type Known = Pick<Document, 'devices' | 'machine'>;

/** First characters of a UUID, by which GPUs of one machine differ. */
const UUID = 'GPU-12345678'.length;

/** `GPU 1`, as the program calls it. */
export function ordinal({ machine }: Pick<Document, 'machine'>, device: number | null): string {
  const known = device === null ? undefined : machine.devices[device];
  if (!known) return 'an unknown GPU';
  return known.ordinal === null ? known.uuid.slice(0, UUID) : `GPU ${known.ordinal}`;
}

/** `GPU 1`, `GPU 0 of rank 1`: a name that no other GPU of the session has. */
export function gpu(doc: Known, device: number | null): string {
  const name = ordinal(doc, device);
  const isAlone = doc.machine.devices.every((_, other) => other === device || ordinal(doc, other) !== name);
  if (device === null || isAlone) return name;
  const ranks = new Set(doc.devices.list.filter((one) => one.device === device).map(({ rank }) => rank));
  const [rank] = [...ranks];
  if (ranks.size === 1 && rank != null) return `${name} of rank ${rank}`;
  return `${name} (${doc.machine.devices[device]?.uuid.slice(0, UUID)}…)`;
}

/** `rank 1 (process 4711)`, or the process alone. */
export function user({ rank, pid }: Pick<DeviceAccounts, 'rank' | 'pid'>): string {
  return rank === null ? `process ${pid}` : `rank ${rank} (process ${pid})`;
}

/** Orders what belongs to processes: by rank, then by process. */
export function byRank(a: Pick<DeviceAccounts, 'rank' | 'pid'>, b: Pick<DeviceAccounts, 'rank' | 'pid'>): number {
  return (a.rank ?? -1) - (b.rank ?? -1) || a.pid - b.pid;
}
