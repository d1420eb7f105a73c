// Mouse, touch and wheel on the timeline: what they mean, in shares of its width.

export interface Gestures {
  /** Moves the view by a share of its length, and the lanes by pixels. */
  pan: (share: number, down: number) => void;
  /** Zooms around a share of the width. */
  zoom: (factor: number, at: number) => void;
  /** Selects what lies between two shares of the width. */
  select: (from: number, to: number) => void;
  /** A click at a share of the width and a height. */
  pick: (at: number, y: number) => void;
  point: (at: number | null, y: number) => void;
  /** Whether a drag selects without the shift key. */
  selects: () => boolean;
}

/** Pixels that a click may move by. */
const STILL = 4;
/** Factor of the zoom for a pixel of the wheel. */
const WHEEL = 1.0022;
const LINE = 20;

interface Finger {
  x: number;
  y: number;
}

/** Listens on an element; returns what ends that. */
export function listen(element: HTMLElement, to: Gestures): () => void {
  const fingers = new Map<number, Finger>();
  let began: { x: number; selects: boolean; moved: boolean } | null = null;

  const place = (event: MouseEvent): Finger & { width: number } => {
    const box = element.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top, width: Math.max(1, box.width) };
  };

  const down = (event: PointerEvent) => {
    if (event.button !== 0) return;
    const { x, y } = place(event);
    fingers.set(event.pointerId, { x, y });
    element.setPointerCapture(event.pointerId);
    if (fingers.size === 1) began = { x, selects: event.shiftKey || to.selects(), moved: false };
    else if (began) began.moved = true;
  };

  const move = (event: PointerEvent) => {
    const { x, y, width } = place(event);
    const before = fingers.get(event.pointerId);
    if (!before || !began) return to.point(x / width, y);
    if (Math.abs(x - began.x) > STILL || Math.abs(y - before.y) > STILL) began.moved = true;
    const other = [...fingers].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      // Two fingers: what lies under each stays under it.
      const [wide, now] = [Math.abs(before.x - other.x), Math.abs(x - other.x)];
      if (wide > STILL && now > STILL) to.zoom(wide / now, other.x / width);
    } else if (began.moved) {
      if (began.selects) to.select(Math.min(began.x, x) / width, Math.max(began.x, x) / width);
      else to.pan((before.x - x) / width, event.pointerType === 'mouse' ? before.y - y : 0);
    } else return;
    fingers.set(event.pointerId, { x, y });
  };

  const up = (event: PointerEvent) => {
    if (!fingers.delete(event.pointerId)) return;
    const { x, y, width } = place(event);
    if (fingers.size > 0) return;
    if (began && !began.moved && event.type === 'pointerup') to.pick(x / width, y);
    began = null;
  };

  const leave = () => to.point(null, 0);

  // The wheel scrolls the page until the timeline has the focus or a key says otherwise; two
  // fingers on a touchpad come as a wheel with the control key.
  const wheel = (event: WheelEvent) => {
    const { x, width } = place(event);
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE : event.deltaMode === WheelEvent.DOM_DELTA_PAGE ? width : 1;
    const [right, below] = [event.deltaX * unit, event.deltaY * unit];
    if (event.ctrlKey || event.metaKey) to.zoom(WHEEL ** (below * (Math.abs(below) < 50 ? 4 : 1)), x / width);
    else if (event.shiftKey) to.pan((right || below) / width, 0);
    else if (Math.abs(right) > Math.abs(below)) to.pan(right / width, 0);
    else if (document.activeElement === element) to.zoom(WHEEL ** below, x / width);
    else return;
    event.preventDefault();
  };

  const listeners: [string, (event: never) => void][] = [
    ['pointerdown', down], ['pointermove', move], ['pointerup', up], ['pointercancel', up], ['pointerleave', leave], ['wheel', wheel],
  ];
  for (const [name, listener] of listeners) element.addEventListener(name, listener as EventListener, { passive: false });
  return () => {
    for (const [name, listener] of listeners) element.removeEventListener(name, listener as EventListener);
  };
}
