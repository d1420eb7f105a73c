// Requests of the timeline to the server.
import type { Answer, Found, SpanFigures } from './model';

/** What is asked for: times, lanes, what is searched for. */
export type Question = Record<string, string | number | string[] | undefined>;

/** An answer of the server that is none: its text says why. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    text: string,
  ) {
    super(text);
  }
}

export class Client {
  constructor(readonly session: string) {}

  async #get<T>(path: string, question: Question, signal?: AbortSignal): Promise<T> {
    const parameters = new URLSearchParams();
    for (const [name, value] of Object.entries(question)) {
      for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined && one !== '') parameters.append(name, String(one));
    }
    const response = await fetch(`/api/v1/sessions/${encodeURIComponent(this.session)}/timeline${path}?${parameters}`, { signal });
    if (!response.ok) throw new Refused(response.status, await response.text());
    return (await response.json()) as T;
  }

  timeline(question: Question, signal?: AbortSignal): Promise<Answer> {
    return this.#get('', question, signal);
  }

  launch(question: Question, signal?: AbortSignal): Promise<Found> {
    return this.#get('/launch', question, signal);
  }

  span(question: Question, signal?: AbortSignal): Promise<SpanFigures> {
    return this.#get('/span', question, signal);
  }
}
