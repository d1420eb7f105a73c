// What the server of `apex dashboard` tells: docs/api.md.
import type { Document, LinesOfKernel, WhatIf } from './document';
import { view } from './view.svelte';

export interface Session {
  id: string;
  name: string;
  folder: string;
  command: string | null;
  started_ns: number | null;
  ended_ns: number | null;
}

export type State = 'running' | 'growing' | 'ended' | 'unreadable' | 'deleted';

export interface Condition {
  state: State | null;
  running: number[];
  message: string | null;
}

const SESSIONS = '/api/v1/sessions';

/** The sessions that are shown; an error says what is wrong. */
export async function sessions(): Promise<Session[]> {
  const response = await fetch(SESSIONS);
  if (!response.ok) throw new Error(await response.text());
  return ((await response.json()) as { sessions: Session[] }).sessions;
}

/** The part of the session that the address is about, as parameters of a request. */
export function partOf(): URLSearchParams {
  const parameters = new URLSearchParams();
  // (`kernel` of the address is the one whose page is open.)
  for (const [name, value] of Object.entries({ last: view.last, phase: view.phase, kernel: view.only, window: view.window, rank: view.rank })) {
    if (value) parameters.append(name, value);
  }
  return parameters;
}

/** What changes would do to a kernel; an error says what is wrong. */
export async function whatIf(session: string, kernel: string, changes: URLSearchParams, signal: AbortSignal): Promise<WhatIf> {
  const query = new URLSearchParams([...partOf(), ...changes]);
  const response = await fetch(`${SESSIONS}/${encodeURIComponent(session)}/kernels/${kernel}/what-if?${query}`, { signal });
  if (!response.ok) throw new Error(await response.text());
  return (await response.json()) as WhatIf;
}

/** What the lines of a kernel did; an error says what is wrong. */
export async function linesOf(session: string, kernel: string, signal: AbortSignal): Promise<LinesOfKernel> {
  const response = await fetch(`${SESSIONS}/${encodeURIComponent(session)}/kernels/${kernel}/lines?${partOf()}`, { signal });
  if (!response.ok) throw new Error(await response.text());
  return (await response.json()) as LinesOfKernel;
}

/** What is known of a part of a session. */
export class Followed {
  doc: Document | null = $state.raw(null);
  condition: Condition | null = $state.raw(null);
  /** What is wrong with the request or the connection. */
  trouble: string | null = $state(null);
  /** Whether nobody answers any more: how the session is now is not known. */
  lost = $state(false);
  /** While it is held, documents that come are not shown. */
  held = $state(false);
  /** When what is shown changed last, on the clock of the page. */
  came = $state(0);
  #latest: Document | null = null;

  /** Follows the part that a query means; returns what ends that. */
  follow(id: string, query: string): () => void {
    const address = `${SESSIONS}/${encodeURIComponent(id)}/events${query}`;
    const events = new EventSource(address);
    events.addEventListener('condition', (event) => {
      this.condition = JSON.parse(event.data) as Condition;
      this.trouble = null;
      this.lost = false;
    });
    events.addEventListener('document', (event) => {
      this.#latest = JSON.parse(event.data) as Document;
      if (!this.held) this.#show();
    });
    events.onerror = () => {
      if (events.readyState !== EventSource.CLOSED) {
        this.lost = true;
        this.trouble = 'apex dashboard does not answer. The page reconnects by itself once it runs again at this address.';
        return;
      }
      // A refusal has its reason in its text, which event streams do not show.
      const refused = fetch(address).then((response) => response.text());
      refused
        .catch(() => {
          this.lost = true;
          return 'apex dashboard does not answer.';
        })
        .then((text) => (this.trouble = text));
    };
    return () => events.close();
  }

  hold(held: boolean) {
    this.held = held;
    if (!held && this.#latest) this.#show();
  }

  #show() {
    this.doc = this.#latest;
    this.came = performance.now();
  }

  /** Forgets what is shown: something else will be. */
  clear() {
    this.doc = this.#latest = this.condition = this.trouble = null;
    this.held = this.lost = false;
  }
}
