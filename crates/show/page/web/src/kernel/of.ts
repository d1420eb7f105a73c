// Kernels of the document: which one a launch of the timeline is of, and the shapes of one
// function.
import type { Document, Dim3, Kernel } from '../document';

interface Launched {
  name: string | null;
  kernel: { grid: Dim3; block: Dim3; dynamic_shared_bytes: number } | null;
}

/**
 * The kernel of a launch on a device, an index of the document or null; `undefined` where the
 * document lists none that is like it.
 */
export function kernelOf(list: Kernel[], { name, kernel: of }: Launched, device: number | null): Kernel | undefined {
  if (!of) return undefined;
  const same = (one: Dim3, other: Dim3) => one.every((side, at) => side === other[at]);
  const alike = list.filter(
    (kernel) =>
      kernel.short_name === name &&
      same(kernel.grid, of.grid) &&
      same(kernel.block, of.block) &&
      kernel.dynamic_shared_bytes === of.dynamic_shared_bytes,
  );
  return alike.find((kernel) => kernel.device === device) ?? alike[0];
}

/**
 * All configurations of its function on its device, in the order of the document: most GPU time
 * first.
 */
export function shapesOf(list: Kernel[], kernel: Kernel): Kernel[] {
  // (Long names are cut: short ones tell functions apart.)
  const isSame = (other: Kernel) => other.name === kernel.name && other.short_name === kernel.short_name;
  return list.filter((other) => isSame(other) && other.device === kernel.device);
}

/** Multiprocessors of the device of a kernel; 0 if unknown. */
export function smsOf(doc: Document, kernel: Kernel): number {
  return kernel.device === null ? 0 : (doc.machine.devices[kernel.device]?.sms ?? 0);
}
