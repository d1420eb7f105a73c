// Colours of the page as pixels: those of its theme.
import { colour, mixed, type Colour } from './raster';

export interface Palette {
  card: Colour;
  sunk: Colour;
  line: Colour;
  text: Colour;
  /** As style sheets write them. */
  css: { text: string; soft: string; line: string; accent: string; card: string };
  use: (use: string) => Colour;
  /** The colour of a kernel: that of its use, a little lighter or darker than others. */
  named: (use: string, name: string | null) => Colour;
  dimmed: (of: Colour) => Colour;
  paler: (of: Colour) => Colour;
  found: Colour;
}

const SHADES = [0, 0.16, -0.14, 0.3, -0.26];

function hash(text: string): number {
  let sum = 2166136261;
  for (let at = 0; at < text.length; at++) sum = Math.imul(sum ^ text.charCodeAt(at), 16777619);
  return sum >>> 0;
}

/** Remembers what was computed for each key. */
function remembered<K, V>(compute: (key: K) => V): (key: K) => V {
  const known = new Map<K, V>();
  return (key) => {
    const old = known.get(key);
    if (old !== undefined) return old;
    const value = compute(key);
    known.set(key, value);
    return value;
  };
}

/** Reads the colours that hold for an element. */
export function paletteOf(element: HTMLElement): Palette {
  const probe = element.appendChild(document.createElement('span'));
  const css = (name: string) => {
    probe.style.color = `var(--${name}, var(--unknown))`;
    return getComputedStyle(probe).color;
  };
  const pixel = (name: string) => {
    const [red = 0, green = 0, blue = 0] = (css(name).match(/[\d.]+/g) ?? []).map(Number);
    return colour(red, green, blue);
  };
  const uses = ['kernels', 'collectives', 'waiting', 'copies', 'launching', 'allocating', 'transferring', 'synchronising', 'loading', 'capturing', 'other_calls', 'host_code', 'unrecorded', 'unknown'];
  const [card, sunk, line, text] = [pixel('card'), pixel('sunk'), pixel('line'), pixel('text')];
  const known = new Map(uses.map((use) => [use, pixel(use)]));
  const ranges = mixed(sunk, pixel('accent'), 0.45);
  const use = (name: string) => (name === 'range' ? ranges : (known.get(name) ?? known.get('unknown')!));
  const shade = remembered((key: string) => {
    const [of = '', name = ''] = key.split('\0');
    const by = SHADES[hash(name) % SHADES.length]!;
    return mixed(use(of), by > 0 ? 0xffffffff : 0xff000000, Math.abs(by));
  });
  const palette: Palette = {
    card,
    sunk,
    line,
    text,
    css: { text: css('text'), soft: css('soft'), line: css('line'), accent: css('accent'), card: css('card') },
    use,
    named: (of, name) => (name === null || (of !== 'kernels' && of !== 'range') ? use(of) : shade(`${of}\0${name}`)),
    dimmed: remembered((of: Colour) => mixed(of, sunk, 0.78)),
    paler: remembered((of: Colour) => mixed(of, sunk, 0.3)),
    found: pixel('bad'),
  };
  probe.remove();
  return palette;
}
