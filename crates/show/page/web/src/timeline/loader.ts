// Fetches the tiles that a view needs. Requests wait until the view rests for a moment, though not
// for long while it moves on; those of tiles that are no longer wanted are aborted.
import { Refused, type Client } from './client';
import { USES, type Answer } from './model';
import { COLUMNS, levelOf, places, spanOfPlace, tileOf, type Place, type Tiles } from './tiles';
import type { Span } from './viewport';

/**
 * Rest of the view before tiles are fetched, and the longest that a view which moves waits for
 * them, ms.
 */
const REST = 40;
const LONGEST = 120;
/** Requests at a time. */
const AT_ONCE = 3;
/** Before a server that is busy is asked again, ms. */
const AGAIN = 1000;
/** Lanes in a request: the server answers for so many. */
const LANES = 64;

export interface Wanted {
  view: Span;
  /** Pixels of the view. */
  width: number;
  lanes: string[];
  search: string;
  version: string;
}

interface Request {
  key: string;
  place: Place;
  lanes: string[];
}

/** What the loader tells. */
export interface Listener {
  arrived: (answer: Answer) => void;
  failed: (why: string) => void;
}

/** Requests for the tiles that a view lacks: those that it shows first, then those beside them. */
export function missing(tiles: Tiles, { view, width, lanes, search, version }: Wanted): Request[] {
  const level = levelOf(view, width);
  const shown = places(view, level);
  const beside = [shown[0]!.index - 1, shown.at(-1)!.index + 1].filter((index) => index >= 0).map((index) => ({ level, index }));
  return [...shown, ...beside].flatMap((place) => {
    const lacking = lanes.filter((lane) => !tiles.has(lane, place, search, version));
    const parts = Array.from({ length: Math.ceil(lacking.length / LANES) }, (_, at) => lacking.slice(at * LANES, (at + 1) * LANES));
    return parts.map((lanes) => ({ key: `${place.level} ${place.index} ${search} ${version} ${lanes[0]}`, place, lanes }));
  });
}

export class Loader {
  #wanted: Wanted | null = null;
  #running = new Map<string, AbortController>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #waitsSince = 0;

  constructor(
    readonly client: Client,
    readonly tiles: Tiles,
    readonly listener: Listener,
  ) {}

  /** Whether something is being fetched, or will be. */
  get busy(): boolean {
    return this.#running.size > 0 || this.#timer !== undefined;
  }

  want(wanted: Wanted) {
    this.#wanted = wanted;
    const now = performance.now();
    if (this.#timer === undefined) this.#waitsSince = now;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#look(), Math.max(0, Math.min(REST, this.#waitsSince + LONGEST - now)));
  }

  /** Ends all requests. */
  end() {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#wanted = null;
    for (const request of this.#running.values()) request.abort();
    this.#running.clear();
  }

  #look() {
    this.#timer = undefined;
    if (!this.#wanted) return;
    const requests = missing(this.tiles, this.#wanted);
    const keys = new Set(requests.map(({ key }) => key));
    for (const [key, request] of this.#running) {
      if (keys.has(key)) continue;
      request.abort();
      this.#running.delete(key);
    }
    for (const request of requests) {
      if (this.#running.size >= AT_ONCE) break;
      if (!this.#running.has(request.key)) void this.#fetch(request, this.#wanted);
    }
  }

  async #fetch({ key, place, lanes }: Request, { search, version }: Wanted) {
    const control = new AbortController();
    this.#running.set(key, control);
    const { from, to } = spanOfPlace(place);
    let pause: number | null = 0;
    try {
      const answer = await this.client.timeline(
        { from, to, columns: COLUMNS, events: COLUMNS, series: search ? '' : 'time', lane: lanes },
        control.signal,
      );
      if (answer.state === 'ready' && answer.version === version) {
        // (A lane of which nothing is told is empty, or it would be asked for for ever.)
        for (const lane of answer.lanes) if (lanes.includes(lane.id)) this.tiles.put(place, tileOf(answer, lane, USES, search));
      } else pause = null;
      this.listener.arrived(answer);
    } catch (error) {
      if (control.signal.aborted) return;
      const isBusy = error instanceof Refused && error.status === 503;
      pause = isBusy ? AGAIN : null;
      if (!isBusy) this.listener.failed(error instanceof Refused ? error.message : 'apex dashboard does not answer.');
    } finally {
      if (this.#running.get(key) === control) this.#running.delete(key);
    }
    // What could not be had is asked for when the view changes.
    if (pause === 0) this.#look();
    else if (pause !== null) setTimeout(() => this.#look(), pause);
  }
}
