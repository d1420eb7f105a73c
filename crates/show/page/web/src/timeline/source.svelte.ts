// What the server knows of a session's timeline: its lanes, and tiles of them as they come.
import { Client, Refused } from './client';
import { Loader } from './loader';
import { USES, type Answer, type Head } from './model';
import { COLUMNS, Tiles, tileOf, wholeLevel } from './tiles';

/** Between two looks while the server reads the session, and while the session grows, ms. */
const BUILDING = 500;
const GROWING = 1000;
/** Between two looks at a session that cannot be read, ms. */
const UNREADABLE = 5000;

export class Source {
  /** The newest answer about the whole session. */
  answer: Answer | null = $state.raw(null);
  /** How far the server has read the session, 0 to 1, while it does. */
  progress: number | null = $state(null);
  trouble: string | null = $state(null);
  /** Whether the session is deleted: nothing is asked for any more, and what has come stays. */
  deleted = $state(false);
  /** What the server says of the timeline: what it lacks, where its index is. */
  note: string | null = $state(null);
  /** Counts what has come: a frame is drawn for each. */
  arrivals = $state(0);
  readonly client: Client;
  readonly tiles = new Tiles();
  readonly loader: Loader;
  #search = '';
  #timer: ReturnType<typeof setTimeout> | undefined;
  #request: AbortController | null = null;

  constructor(session: string) {
    this.client = new Client(session);
    this.loader = new Loader(this.client, this.tiles, {
      arrived: (answer) => {
        this.trouble = null;
        this.arrivals++;
        if (this.holds(answer) && answer.version !== this.answer?.version) void this.look(this.#search);
      },
      failed: (why) => (this.trouble = why),
    });
  }

  /** Takes note of how the timeline is; whether the session is still there. */
  holds({ state }: Pick<Head, 'state'>): boolean {
    if (state === 'deleted') this.lose();
    return !this.deleted;
  }

  /** The session is deleted. */
  lose() {
    this.deleted = true;
    this.progress = this.trouble = null;
    this.end();
  }

  /**
   * Asks for the whole session, with what is searched for. One that was deleted may be there again.
   */
  async look(search: string) {
    this.#search = search;
    clearTimeout(this.#timer);
    this.#request?.abort();
    const request = new AbortController();
    this.#request = request;
    try {
      const answer = await this.client.timeline({ columns: COLUMNS, events: COLUMNS, series: search ? '' : 'time' }, request.signal);
      this.deleted = false;
      if (!this.holds(answer)) return;
      const { state } = answer;
      this.trouble = state === 'unreadable' ? answer.message : null;
      this.progress = state === 'building' ? (answer.progress ?? 0) : null;
      if (state === 'ready') this.#take(answer, search);
      const again = { building: BUILDING, unreadable: UNREADABLE, deleted: null, ready: answer.growing ? GROWING : null }[state];
      if (again !== null) this.#timer = setTimeout(() => this.look(search), again);
    } catch (error) {
      if (request.signal.aborted) return;
      this.trouble = error instanceof Refused ? error.message : 'apex dashboard does not answer.';
      const isBusy = error instanceof Refused && error.status === 503;
      if (isBusy) this.#timer = setTimeout(() => this.look(search), GROWING);
    }
  }

  #take(answer: Answer, search: string) {
    const level = wholeLevel(answer.end_ns);
    this.tiles.whole = level;
    this.note = answer.message;
    for (const lane of answer.lanes) if (lane.columns || lane.events) this.tiles.put({ level, index: 0 }, tileOf(answer, lane, USES, search));
    this.answer = answer;
    this.arrivals++;
  }

  end() {
    clearTimeout(this.#timer);
    this.#request?.abort();
    this.loader.end();
  }
}
