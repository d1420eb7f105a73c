// A picture of parts of time that is used like a slider: which part a pointer or a key asks for.

const within = (part: number, parts: number) => Math.min(parts - 1, Math.max(0, part));

/** The part under the pointer, of so many. */
export function partAt(event: PointerEvent, parts: number): number {
  const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
  return within(Math.floor(((event.clientX - box.left) / box.width) * parts), parts);
}

/**
 * The part that a key asks for, of so many, where `now` is the current one or -1; null if the key
 * is another, which then stays the browser's.
 */
export function partByKey(event: KeyboardEvent, now: number, parts: number): number | null {
  const wanted: Record<string, number> = {
    ArrowRight: now + 1, ArrowUp: now + 1, ArrowLeft: now - 1, ArrowDown: now - 1,
    PageUp: now + 10, PageDown: now - 10, Home: 0, End: parts - 1,
  };
  const part = wanted[event.key];
  if (part === undefined) return null;
  event.preventDefault();
  return within(part, parts);
}

/**
 * Whether a pointer that leaves takes what it pointed at along: not from a part that keys went to,
 * for the page moves under a pointer that rests.
 */
export const isLeft = (event: PointerEvent) => document.activeElement !== event.currentTarget;
