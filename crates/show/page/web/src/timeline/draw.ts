// One frame of the timeline: the axis, the visible lanes, and what is selected on top of them.
import { axis, marksIn } from './axis';
import type { Palette } from './palette';
import { Raster, isLight, type Colour } from './raster';
import type { Row } from './rows';
import { levelOf, places, type Drawn, type TileEvents, type Tiles } from './tiles';
import type { Span } from './viewport';

/** Height of the axis, in pixels of the page. */
export const AXIS = 24;
/** Pixels between lanes. */
const GAP = 4;
/** Narrower events have no name. */
const NAMED = 34;
/** Names that are drawn in a frame. */
const NAMES = 300;
const SMALL = '11px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';

/** Something that is outlined: an event, or a collective on one of its ranks. */
export interface Outline {
  lane: string;
  start: number;
  end: number;
}

export interface Frame {
  width: number;
  height: number;
  /** Pixels of the screen in one of the page. */
  scale: number;
  view: Span;
  end: number;
  rows: Row[];
  /** How far the rows are scrolled. */
  top: number;
  tiles: Tiles;
  palette: Palette;
  searching: boolean;
  selected: Span | null;
  outlines: Outline[];
  /** Collective that is selected: `group/ordinal`. */
  collective: string | null;
  pointed: Outline | null;
  /** Lane that the keyboard is at. */
  lane: string | null;
  /** Where the steady state of each process begins. */
  steady: { process: number; start: number }[];
}

interface Named {
  x0: number;
  x1: number;
  y: number;
  height: number;
  name: string;
  on: Colour;
}

/** Draws frames on a canvas; keeps the memory of their pixels. */
export class Painter {
  #image: ImageData | null = null;

  constructor(readonly context: CanvasRenderingContext2D) {}

  draw(frame: Frame) {
    const { context } = this;
    const [width, height] = [Math.round(frame.width * frame.scale), Math.round(frame.height * frame.scale)];
    if (width === 0 || height === 0) return;
    if (context.canvas.width !== width || context.canvas.height !== height) {
      context.canvas.width = width;
      context.canvas.height = height;
    }
    if (this.#image?.width !== width || this.#image.height !== height) this.#image = context.createImageData(width, height);
    const raster = new Raster(width, height, frame.view, new Uint32Array(this.#image.data.buffer));
    const names: Named[] = [];
    raster.clear(frame.palette.card);
    const grid = axis(frame.view, marksIn(frame.width)).marks.map(({ ns }) => Math.round(raster.x(ns)));
    const least = shortest(frame);
    for (const row of frame.rows) lane(raster, frame, row, { names, grid, least });
    // What is scrolled lies under the axis.
    raster.rectangle(0, 0, width, Math.round(AXIS * frame.scale), frame.palette.card);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.putImageData(this.#image, 0, 0);
    context.setTransform(frame.scale, 0, 0, frame.scale, 0, 0);
    labels(context, names);
    marks(context, frame);
    overlay(context, frame);
  }
}

const yOf = (frame: Frame, row: Row) => AXIS + row.top - frame.top;

/** What a frame has while its lanes are drawn. */
interface Drawing {
  names: Named[];
  /** Pixels of the axis' marks. */
  grid: number[];
  /** By collective. */
  least: Map<string, number>;
}

/**
 * How long each collective that is seen takes on the rank that takes least for it: what others take
 * beyond that, they wait for the last rank (as the accounts have it).
 */
function shortest({ rows, tiles, view, width }: Frame): Map<string, number> {
  const least = new Map<string, number>();
  for (const { lane } of rows) {
    if (lane?.kind !== 'stream') continue;
    for (const place of places(view, levelOf(view, width))) {
      for (const { tile } of tiles.content(lane.id, place)) {
        const { events } = tile;
        events?.collective.forEach((collective, at) => {
          const takes = events.end[at]! - events.start[at]!;
          if (collective !== null) least.set(collective, Math.min(least.get(collective) ?? Infinity, takes));
        });
      }
    }
  }
  return least;
}

function lane(raster: Raster, frame: Frame, row: Row, drawing: Drawing) {
  const { palette, scale, tiles, view } = frame;
  const y = yOf(frame, row);
  const top = Math.round((y + (row.lane ? 0 : row.height - 1)) * scale);
  const bottom = Math.round((y + row.height - (row.lane ? GAP : 0)) * scale);
  if (!row.lane) return raster.rectangle(0, top, raster.width, bottom, palette.line);
  raster.rectangle(Math.round(raster.x(0)), top, Math.round(raster.x(frame.end)), bottom, palette.sunk);
  // Marks of the axis lie behind what happens, where they are no borders of events.
  for (const x of drawing.grid) raster.rectangle(x, top, x + 1, bottom, palette.line);
  for (const place of places(view, levelOf(view, frame.width))) {
    for (const drawn of tiles.content(row.lane.id, place)) {
      if (drawn.tile.events) events(raster, frame, drawn, drawn.tile.events, top, bottom, drawing);
      else columns(raster, frame, drawn, top, bottom);
    }
  }
}

function columns(raster: Raster, { palette, searching }: Frame, { tile, range }: Drawn, top: number, bottom: number) {
  const layers = tile.layers.map(({ use, shares }) => {
    const colour = palette.use(use);
    return { shares, colour: searching ? palette.dimmed(colour) : colour };
  });
  raster.columns(tile.from, tile.columnNs, layers, range, top, bottom);
  if (!searching || !tile.found) return;
  raster.columns(tile.from, tile.columnNs, [{ shares: tile.found, colour: palette.found }], range, top, bottom);
}

/** Index of the first event that may reach into a range. */
function firstIn({ start }: TileEvents, from: number): number {
  let [low, high] = [0, start.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (start[middle]! < from) low = middle + 1;
    else high = middle;
  }
  // Calls may lie in each other; a few steps back find those that go on.
  return Math.max(0, low - 8);
}

function events(raster: Raster, frame: Frame, { range }: Drawn, of: TileEvents, top: number, bottom: number, { names, least }: Drawing) {
  const { palette, scale, searching, collective, view } = frame;
  const [from, to] = [Math.max(range.from, view.from), Math.min(range.to, view.to)];
  for (let at = firstIn(of, from); at < of.start.length && of.start[at]! < to; at++) {
    const [start, end] = [Math.max(of.start[at]!, range.from), Math.min(of.end[at]!, range.to)];
    if (end < from) continue;
    const name = of.name[at]!;
    let colour = palette.named(of.use[at]!, name);
    if (of.basis[at] === 'modelled') colour = palette.paler(colour);
    if (searching) colour = of.found[at] ? palette.found : palette.dimmed(colour);
    else if (collective !== null && of.collective[at] !== collective) colour = palette.dimmed(colour);
    raster.event(start, end, top, bottom, colour, of.end[at]! > range.to);
    const waits = Math.min(of.end[at]! - (least.get(of.collective[at] ?? '') ?? Infinity), end);
    if (waits > start && !searching && (collective === null || of.collective[at] === collective)) {
      raster.event(start, waits, top, bottom, of.basis[at] === 'modelled' ? palette.paler(palette.use('waiting')) : palette.use('waiting'), true);
    }
    if (name === null || names.length >= NAMES) continue;
    // Several tiles may have the event: its name is drawn by the one where it begins to be seen.
    const seen = Math.max(of.start[at]!, view.from);
    const [x0, x1] = [raster.x(seen), Math.min(raster.width, raster.x(of.end[at]!))];
    if (seen < range.from || seen >= range.to || x1 - x0 < NAMED * scale) continue;
    names.push({ x0: x0 / scale, x1: x1 / scale, y: top / scale, height: (bottom - top) / scale, name, on: colour });
  }
}

function labels(context: CanvasRenderingContext2D, names: Named[]) {
  context.font = SMALL;
  context.textBaseline = 'middle';
  context.textAlign = 'left';
  // Digits and capitals are wider than the mean letter: names are cut rather than measured.
  for (const { x0, x1, y, height, name, on } of names) {
    if (y + height <= AXIS) continue;
    const letters = Math.floor((x1 - x0 - 8) / 7);
    if (letters < 3) continue;
    context.fillStyle = isLight(on) ? '#000' : '#fff';
    context.fillText(name.length > letters ? `${name.slice(0, letters - 1)}…` : name, x0 + 4, y + height / 2 + 0.5);
  }
}

function marks(context: CanvasRenderingContext2D, frame: Frame) {
  const { palette, width, view } = frame;
  const { marks } = axis(view, marksIn(width));
  context.font = SMALL;
  context.textBaseline = 'middle';
  for (const { ns, text } of marks) {
    const x = Math.round(((ns - view.from) / (view.to - view.from)) * width);
    context.fillStyle = palette.css.line;
    context.fillRect(x, AXIS - 5, 1, 5);
    context.fillStyle = palette.css.soft;
    const half = context.measureText(text).width / 2;
    context.textAlign = 'center';
    context.fillText(text, Math.min(width - half - 2, Math.max(half + 2, x)), AXIS / 2 - 1);
  }
  context.fillStyle = palette.css.line;
  context.fillRect(0, AXIS - 1, width, 1);
}

function overlay(context: CanvasRenderingContext2D, frame: Frame) {
  const { palette, width, height, view, selected } = frame;
  const x = (ns: number) => ((ns - view.from) / (view.to - view.from)) * width;
  context.save();
  context.beginPath();
  context.rect(0, AXIS, width, height - AXIS);
  context.clip();
  if (selected) {
    const [left, right] = [Math.max(-2, x(selected.from)), Math.min(width + 2, x(selected.to))];
    context.fillStyle = palette.css.accent;
    context.globalAlpha = 0.16;
    context.fillRect(left, 0, Math.max(1, right - left), height);
    context.globalAlpha = 1;
    context.fillRect(left - 1, 0, 2, height);
    context.fillRect(right - 1, 0, 2, height);
  }
  context.strokeStyle = palette.css.text;
  context.lineWidth = 1.5;
  context.setLineDash([4, 4]);
  for (const { process, start } of frame.steady) {
    for (const row of frame.rows.filter((row) => row.lane?.process === process)) {
      context.beginPath();
      context.moveTo(x(start), yOf(frame, row));
      context.lineTo(x(start), yOf(frame, row) + row.height - GAP);
      context.stroke();
    }
  }
  context.setLineDash([]);
  const rowOf = (lane: string) => frame.rows.find((row) => row.lane?.id === lane);
  const outline = ({ lane, start, end }: Outline, style: string, wide: number) => {
    const row = rowOf(lane);
    if (!row) return;
    const [left, right] = [x(start), Math.max(x(end), x(start) + 3)];
    if (right < 0 || left > width) return;
    context.strokeStyle = style;
    context.lineWidth = wide;
    const [from, to] = [Math.max(-4, left), Math.min(width + 4, right)];
    context.strokeRect(from, yOf(frame, row), to - from, row.height - GAP);
  };
  for (const one of frame.outlines) outline(one, palette.css.text, 2);
  if (frame.pointed) outline(frame.pointed, palette.css.text, 1);
  const at = frame.lane === null ? undefined : rowOf(frame.lane);
  if (at) {
    context.fillStyle = palette.css.accent;
    context.fillRect(0, yOf(frame, at) + at.height - GAP + 1, width, 2);
  }
  context.restore();
}
