// What the sliders of a kernel's page offer: values that a launch can have, with the kernel's own
// among them.
import type { Dim3, Kernel } from '../document';

export interface Changes {
  block: Dim3;
  registers: number | null;
  shared: number;
}

/**
 * The block of so many threads that is most like another: its x and z stay, and a block of one row
 * stays one.
 */
export function blockOf(like: Dim3, threads: number): Dim3 | null {
  const [x, y, z] = like;
  if (y === 1 && z === 1) return [threads, 1, 1];
  const rows = threads / (x * z);
  return Number.isInteger(rows) && rows > 0 ? [x, rows, z] : null;
}

export const threadsOf = (block: Dim3) => block[0] * block[1] * block[2];

const among = (values: number[], own: number) => [...new Set([...values, own])].sort((a, b) => a - b);
const steps = (from: number, to: number, by: number) => Array.from({ length: Math.max(0, Math.floor((to - from) / by) + 1) }, (_, at) => from + at * by);

/** Threads of a block: whole warps, as far as the block keeps its shape. */
export function blocks(kernel: Kernel, most: number): number[] {
  return among(steps(32, most, 32).filter((threads) => blockOf(kernel.block, threads)), threadsOf(kernel.block));
}

/** Registers of a thread, in the steps in which a device gives them. */
export function registers(own: number, most: number): number[] {
  return among([...steps(16, most, 8), most], own);
}

/** Dynamic shared memory of a block, in KiB. */
export function shared(kernel: Kernel, most: number): number[] {
  return among(steps(0, most - (kernel.static_shared_bytes ?? 0), 1024), kernel.dynamic_shared_bytes);
}

/** The changes that stand in the address. */
export function changesOf(kernel: Kernel, text: string): Changes {
  const given = new URLSearchParams(text);
  const whole = (name: string) => (/^\d+$/.test(given.get(name) ?? '') ? Number(given.get(name)) : null);
  const threads = whole('block');
  return {
    block: (threads === null ? null : blockOf(kernel.block, threads)) ?? kernel.block,
    registers: whole('registers') ?? kernel.registers,
    shared: whole('shared') ?? kernel.dynamic_shared_bytes,
  };
}

/** What differs from the kernel, for the address. */
export function textOf(kernel: Kernel, { block, registers, shared }: Changes): string {
  const text = new URLSearchParams();
  if (threadsOf(block) !== threadsOf(kernel.block)) text.append('block', String(threadsOf(block)));
  if (registers !== kernel.registers) text.append('registers', String(registers));
  if (shared !== kernel.dynamic_shared_bytes) text.append('shared', String(shared));
  return text.toString();
}

/** The same for the server, whose blocks have sides. */
export function queryOf(kernel: Kernel, changes: Changes): URLSearchParams {
  const query = new URLSearchParams(textOf(kernel, changes));
  if (query.has('block')) query.set('block', changes.block.join(','));
  return query;
}
