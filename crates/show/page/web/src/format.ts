// Numbers as the text report writes them: three significant digits, SI prefixes for times, binary ones for bytes.
import type { Dim3, Figure, Kernel, MachineUnit, Unit } from './document';

const MARKS = { measured: 'ᵐ', computed: 'ᶜ', predicted: 'ᵖ' } as const;

/** What each mark means. */
export const MEANINGS: Record<string, string> = {
  ᵐ: 'measured',
  ᶜ: 'computed exactly',
  ᵖ: 'predicted by a model',
};

function digits(value: number): string {
  const size = Math.abs(value);
  return value.toFixed(size >= 99.95 || size === 0 ? 0 : size >= 9.995 ? 1 : 2);
}

function scaleOf(ns: number): [number, string] {
  const size = Math.abs(ns);
  return size < 1e3 ? [1, 'ns'] : size < 1e6 ? [1e3, 'µs'] : size < 1e9 ? [1e6, 'ms'] : [1e9, 's'];
}

/** `1.23 ms` from nanoseconds; the space does not break. */
export function time(ns: number): string {
  const [scale, unit] = scaleOf(ns);
  return `${digits(ns / scale)}\u00a0${unit}`;
}

/** `1.01–1.50 ms`: an interval in the unit of its upper end. */
export function timeRange(low: number, high: number): string {
  const [scale, unit] = scaleOf(high);
  return `${digits(low / scale)}–${digits(high / scale)}\u00a0${unit}`;
}

export function bytes(count: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
  let [value, unit] = [count, 0];
  while (value >= 1024 && unit + 1 < units.length) [value, unit] = [value / 1024, unit + 1];
  return `${unit === 0 ? count : digits(value)}\u00a0${units[unit]}`;
}

export function count(value: number): string {
  return Math.round(value).toLocaleString('en-US');
}

/** `1 launch`, `2,000 launches`. */
export function counted(value: number, one: string, many = `${one}s`): string {
  return `${count(value)}\u00a0${value === 1 ? one : many}`;
}

/** `38%` from a ratio. */
export function share(ratio: number): string {
  const percent = ratio * 100;
  return percent > 0 && percent < 0.5 ? '<1%' : `${percent.toFixed(0)}%`;
}

/** `37.5%` from a ratio; small shares keep a digit that is not zero. */
export function percent(ratio: number): string {
  const percent = ratio * 100;
  const size = Math.abs(percent);
  if (size === 0 || size >= 99.95) return `${percent.toFixed(0)}%`;
  return size < 0.01 ? '<0.01%' : `${percent.toFixed(size < 1 ? 2 : 1)}%`;
}

export function ratio(value: number): string {
  return digits(value);
}

export function mark(figure: Pick<Figure, 'provenance'>): string {
  return MARKS[figure.provenance];
}

/** `38–100%`: the interval of a predicted share, where it has one; never above all. */
/** Whether a saving may be nothing, and its value is the most that it can be. */
export function isUpperEnd({ value, low, high }: Figure): boolean {
  return low !== undefined && high !== undefined && value > 0 && low <= 0.02 * high && value >= 0.98 * high;
}

/** A share that is saved: never its upper end alone where it may be nothing. */
export function saved(figure: Figure): string {
  return `${isUpperEnd(figure) ? 'up to ' : ''}${share(figure.value)}`;
}

export function shareRange(figure: Figure): string {
  if (figure.low === undefined || figure.high === undefined) return '';
  return `${(figure.low * 100).toFixed(0)}–${(Math.min(figure.high, 1) * 100).toFixed(0)}%`;
}

export function valueOf(value: number, unit: Unit): string {
  switch (unit) {
    case 'share':
      return percent(value);
    case 'nanoseconds':
      return time(value);
    case 'bytes':
      return bytes(Math.max(0, value));
    default:
      return Number.isInteger(value) ? count(value) : value.toFixed(2);
  }
}

/** A reading of the machine in its unit. */
export function quantity(value: number, unit: MachineUnit | 'joules'): string {
  switch (unit) {
    case 'watts':
      return `${value.toFixed(0)}\u00a0W`;
    case 'joules':
      return value >= 1e6 ? `${digits(value / 1e6)}\u00a0MJ` : value >= 1e3 ? `${digits(value / 1e3)}\u00a0kJ` : `${value.toFixed(0)}\u00a0J`;
    case 'megahertz':
      return `${value.toFixed(0)}\u00a0MHz`;
    case 'celsius':
      return `${value.toFixed(0)}\u00a0°C`;
    case 'bytes':
      return bytes(value);
    case 'bytes_per_second':
      return `${bytes(value)}/s`;
    case 'share':
      return share(value);
    case 'cpus':
    case 'count':
      return Number.isInteger(value) ? count(value) : digits(value);
  }
}

/** Dimensions without trailing ones: `256` or `(64, 64)`; `?` for those of a launch that was not recorded. */
function extent(dimensions: Dim3): string {
  if (dimensions.every((side) => side === 0)) return '?';
  const used = dimensions[2] !== 1 ? 3 : dimensions[1] !== 1 ? 2 : 1;
  return used === 1 ? `${dimensions[0]}` : `(${dimensions.slice(0, used).join(',\u00a0')})`;
}

/**
 * A launch configuration as CUDA C++ writes it: `<<<(20, 24), (16, 16), 2 KiB>>>`, without the
 * dynamic shared memory if there is none, and with the cluster if there is one.
 */
export function configuration(kernel: Pick<Kernel, 'grid' | 'block' | 'cluster' | 'dynamic_shared_bytes'>): string {
  const parts = [extent(kernel.grid), extent(kernel.block)];
  if (kernel.dynamic_shared_bytes > 0) parts.push(bytes(kernel.dynamic_shared_bytes).replace(/\.0+(?=\u00a0)/, ''));
  const cluster = kernel.cluster.some((side) => side > 1) ? ` cluster ${extent(kernel.cluster)}` : '';
  return `<<<${parts.join(', ')}>>>${cluster}`;
}

/** Text as a sentence of its own: with a capital, unless it begins with code, and an end. */
export function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?:]$/.test(text) ? '' : '.'}`;
}

export function words(identifier: string): string {
  return identifier.replaceAll('_', ' ');
}
