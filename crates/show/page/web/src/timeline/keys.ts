// What keys mean on the timeline.

export type Command = 'pan' | 'zoom' | 'whole' | 'end' | 'lane' | 'step' | 'found' | 'nearest' | 'gap' | 'mark' | 'fit' | 'pick' | 'escape';

/** For who does not see the picture. */
export const LABELS =
  'arrow keys left and right or A and D move, W and S or plus and minus zoom, Home shows all, End the end, up and down choose a lane, ' +
  'Enter opens the event in the middle, E goes to the nearest event, comma and period the one before and after it, N and P the next and previous launch found, ' +
  'G the next gap, M selects what is shown, F zooms to what is selected, Escape closes';

const KEYS: Record<string, [Command, number]> = {
  a: ['pan', -0.15], arrowleft: ['pan', -0.15], pageup: ['pan', -0.9],
  d: ['pan', 0.15], arrowright: ['pan', 0.15], pagedown: ['pan', 0.9],
  w: ['zoom', 0.7], '+': ['zoom', 0.7], '=': ['zoom', 0.7],
  s: ['zoom', 1 / 0.7], '-': ['zoom', 1 / 0.7],
  home: ['whole', 0], end: ['end', 0],
  arrowup: ['lane', -1], arrowdown: ['lane', 1],
  ',': ['step', -1], '.': ['step', 1],
  n: ['found', 1], p: ['found', -1],
  e: ['nearest', 0], g: ['gap', 1], m: ['mark', 0], f: ['fit', 0],
  enter: ['pick', 0], escape: ['escape', 0],
};

/** The command of a key and how far it goes; none for keys of the browser. */
export function commandOf(event: Pick<KeyboardEvent, 'key' | 'ctrlKey' | 'metaKey' | 'altKey'>): [Command, number] | null {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  return KEYS[event.key.toLowerCase()] ?? null;
}
