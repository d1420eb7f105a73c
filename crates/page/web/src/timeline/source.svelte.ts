// What the server knows of a session's timeline: its lanes, and tiles of them as they come.
import { Client, Refused } from './client';
import { Loader } from './loader';
import { USES, type Answer } from './model';
import { COLUMNS, Tiles, tileOf, wholeLevel } from './tiles';

/** Between two looks while the server reads the session, and while the session grows, ms. */
const BUILDING = 500;
const GROWING = 1000;

export class Source {
  /** The newest answer about the whole session. */
  answer: Answer | null = $state.raw(null);
  /** How far the server has read the session, 0 to 1, while it does. */
  progress: number | null = $state(null);
  trouble: string | null = $state(null);
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
        if (answer.version !== this.answer?.version) void this.look(this.#search);
      },
      failed: (why) => (this.trouble = why),
    });
  }

  /** Asks for the whole session, with what is searched for. */
  async look(search: string) {
    this.#search = search;
    clearTimeout(this.#timer);
    this.#request?.abort();
    const request = new AbortController();
    this.#request = request;
    try {
      const answer = await this.client.timeline({ columns: COLUMNS, events: COLUMNS, series: search ? '' : 'time' }, request.signal);
      this.trouble = null;
      this.note = answer.message;
      this.progress = answer.state === 'building' ? (answer.progress ?? 0) : null;
      if (answer.state === 'ready') this.#take(answer, search);
      const again = answer.state === 'building' ? BUILDING : answer.growing ? GROWING : null;
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
