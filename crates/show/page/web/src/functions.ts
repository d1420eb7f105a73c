// Kernels by function: those that differ in their launch configuration alone are one row.

import type { Kernel } from './document';

/** A function's kernels as one, and how many they are. The one with the most GPU time stands for the rest. */
export interface Row {
  kernel: Kernel;
  of: number;
}

export function byFunction(kernels: Kernel[]): Row[] {
  const groups = new Map<string, Kernel[]>();
  for (const kernel of kernels) {
    const key = `${kernel.device}\0${kernel.name}`;
    groups.set(key, [...(groups.get(key) ?? []), kernel]);
  }
  return [...groups.values()].map((group) => ({ kernel: group.length > 1 ? joined(group) : group[0]!, of: group.length }));
}

const sum = (numbers: number[]) => numbers.reduce((all, one) => all + one, 0);

/** What depends on the configuration is left out; times and numbers are added up. */
function joined(group: Kernel[]): Kernel {
  const weight = (kernel: Kernel) => kernel.gpu_total_ns?.value ?? -1;
  const first = group.toSorted((a, b) => weight(b) - weight(a) || b.launches - a.launches)[0]!;
  const timed = group.filter((kernel) => kernel.gpu_total_ns !== null);
  const parts = group.map((kernel) => kernel.launches_over_time);
  const each = group.flatMap((kernel) => (kernel.gpu_each ? [kernel.gpu_each] : []));
  const mean = (of: { mean_ns: number; count: number }[]) =>
    sum(of.map(({ mean_ns, count }) => mean_ns * count)) / Math.max(1, sum(of.map(({ count }) => count)));
  const cpu = group.map((kernel) => kernel.cpu);
  return {
    ...first,
    launches: sum(group.map((kernel) => kernel.launches)),
    launches_over_time: (parts.find((part) => part.length > 0) ?? []).map((_, at) => sum(parts.map((part) => part[at] ?? 0))),
    gpu_total_ns: first.gpu_total_ns && {
      value: sum(timed.map((kernel) => kernel.gpu_total_ns!.value)),
      provenance: first.gpu_total_ns.provenance,
    },
    gpu_each: first.gpu_each && { ...first.gpu_each, mean_ns: mean(each), count: sum(each.map(({ count }) => count)) },
    cpu: { ...first.cpu, mean_ns: mean(cpu), count: sum(cpu.map(({ count }) => count)) },
    geometry: null,
    counts: null,
    prediction: null,
  };
}
