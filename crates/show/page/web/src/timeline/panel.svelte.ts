// The state of the timeline: what is shown, what is selected, and what changes them. What a link
// should bring back stands in the address (`view.svelte.ts`): the time that is shown, the selected
// span and event, the open groups, the search.
import { tick, untrack } from 'svelte';
import { gpu } from '../devices';
import type { Document } from '../document';
import { time, words } from '../format';
import { view as page } from '../view.svelte';
import { moment, precise } from './axis';
import type { Outline } from './draw';
import { gapsOf } from './gaps';
import type { Command } from './keys';
import { groupsOf, type Group, type Lane, type Launch } from './model';
import { pointedAt } from './pointed';
import { openGroups, openText, rowsOf } from './rows';
import { matcher, nearest } from './search';
import { Source } from './source.svelte';
import { around, length, opening, panned, reaching, spanOf, spanText, within, zoomed, type Span } from './viewport';
import { isEmpty, nearestWork } from './work';

/** What is said of a question that nobody answers any more. */
export const DELETED = 'The session is deleted: nothing more can be looked up.';
/** … or not yet. */
export const BUILDING = 'The timeline is being made: this comes when it is ready.';

/** Lanes that are asked for their nearest event. */
const ASKED = 8;

/** Rest of the view before it stands in the address, ms: browsers bound how often that changes. */
const SETTLED = 250;
/** In the address: all of the session, where something else is shown at first. */
const ALL = 'all';

export const between = (span: Span) => `${moment(span.from, length(span))} to ${moment(span.to, length(span))}`;

export class Panel {
  readonly source: Source;
  #doc: () => Document;
  shown: Span = $state.raw({ from: 0, to: 1 });
  /** Pixels of the lanes. */
  width = $state(0);
  /** Whether the end of a session that grows is kept in view. */
  following = $state(false);
  /** Whether a drag selects. */
  selecting = $state(false);
  /** Where the pointer is, in shares of the width; null beside the lanes. */
  pointer: number | null = null;
  /** The moment that was clicked last. */
  clicked: number | null = null;
  /** The lane that keys go to. */
  lane: string | null = $state(null);
  /** The selected event, or why nothing is known of it. */
  launch: Launch | null = $state.raw(null);
  missed: string | null = $state(null);
  /** What a screen reader says. */
  said = $state('');
  /** Brings a height of the rows into view. */
  scroll: (top: number, bottom: number) => void = () => {};
  #written = '';
  #settled: ReturnType<typeof setTimeout> | undefined;
  #gap = -1;
  /** The event of the address that was found last. */
  #asked = '';

  answer = $derived.by(() => this.source.answer);
  whole: Span = $derived.by(() => {
    const from = this.answer?.start_ns ?? 0;
    return { from, to: Math.max(this.answer?.end_ns ?? 1, from + 1) };
  });
  groups: Group[] = $derived.by(() => (this.answer ? groupsOf(this.answer, this.#laneNameOf) : []));
  open = $derived.by(() => openGroups(page.lanes, this.groups));
  rows = $derived.by(() => rowsOf(this.groups, this.open));
  /** Lanes of the open groups, and devices of the others. */
  lanes = $derived.by(() => this.rows.flatMap((row) => (row.lane ? [row.lane] : [])));
  selected = $derived.by(() => spanOf(page.span));
  steady = $derived.by(() =>
    (this.answer?.phases ?? []).flatMap(({ process, kind, start_ns }) => (kind === 'steady' && start_ns > 0 ? [{ process, start: start_ns }] : [])),
  );
  /** What is shown at first. */
  home: Span = $derived.by(() => {
    const work = (this.answer?.lanes ?? []).filter((lane) => lane.kind === 'device' || lane.kind === 'stream');
    const spans = work.filter((lane) => lane.end_ns > lane.start_ns).map((lane) => ({ from: lane.start_ns, to: lane.end_ns }));
    return opening(this.whole, this.steady.map(({ start }) => start), spans);
  });
  gaps = $derived.by(() => gapsOf(this.#doc(), this.answer));
  #names = $derived.by(() => new Map<string, string>(this.#doc().devices.list.flatMap((device) => device.accounts.map((entry) => [entry.id, entry.name]))));
  /** The selected event, and the same collective on other ranks. */
  outlines: Outline[] = $derived.by(() => {
    const { launch } = this;
    if (!launch) return [];
    const own = { lane: launch.lane, start: launch.start_ns.value, end: launch.start_ns.value + (launch.duration_ns?.value ?? 0) };
    const others = launch.collective?.ranks.map((one) => ({ lane: one.lane, start: one.start_ns, end: one.start_ns + one.duration_ns })) ?? [];
    // Of a closed group, the device stands for its streams.
    return [own, ...others].map((one) => {
      if (this.lanes.some((lane) => lane.id === one.lane)) return one;
      return { ...one, lane: this.#groupOf(one.lane)?.lanes.find((lane) => lane.kind === 'device')?.id ?? one.lane };
    });
  });

  constructor(session: string, doc: () => Document) {
    this.source = new Source(session);
    this.#doc = doc;
  }

  end() {
    clearTimeout(this.#settled);
    this.source.end();
  }

  /** (What the document calls `idle: launch calls` is, of a thread, the calls themselves.) */
  nameOf = (use: string) => (this.#names.get(use) ?? words(use)).replace(/^idle: /, '');

  /** Index of a GPU in the document. */
  #indexOf = (uuid: string | null) => {
    const index = uuid === null ? -1 : this.#doc().machine.devices.findIndex((device) => device.uuid === uuid);
    return index < 0 ? null : index;
  };
  /** Of several GPUs, each has the name that the program gives it. */
  #laneNameOf = ({ kind, name, device_uuid: uuid }: Lane) => {
    const index = this.#indexOf(uuid);
    return kind === 'device' && index !== null && this.#doc().machine.devices.length > 1 ? `${gpu(this.#doc(), index)}, ${name}` : name;
  };
  /** The GPU of a lane. */
  deviceOf = (lane: string) => this.#indexOf(this.answer?.lanes.find((one) => one.id === lane)?.device_uuid ?? null);

  #groupOf(lane: string): Group | undefined {
    return this.groups.find((group) => group.lanes.some((one) => one.id === lane));
  }

  laneName = (id: string) => {
    const group = this.#groupOf(id);
    const name = group?.lanes.find((lane) => lane.id === id)?.name ?? id;
    return this.groups.length > 1 ? `${name} of ${group?.name ?? '?'}` : name;
  };

  say(what: string) {
    this.said = what;
  }

  // --- What is shown.

  show(span: Span) {
    this.shown = within(span, this.whole);
    clearTimeout(this.#settled);
    this.#settled = setTimeout(() => {
      const isWhole = length(this.shown) >= length(this.whole) * 0.9999;
      const { from, to } = this.home;
      const isHome = this.shown.from === from && this.shown.to === to;
      this.#written = page.shown = isHome ? '' : isWhole ? ALL : spanText(this.shown);
      this.say(isWhole ? 'The whole session is shown.' : `Shown: ${between(this.shown)}.`);
    }, SETTLED);
  }

  move(by: (view: Span, whole: Span) => Span) {
    this.following = false;
    this.show(by(this.shown, this.whole));
  }

  zoom = (factor: number, at: number) => this.move((view, whole) => zoomed(view, factor, at, whole));
  pan = (by: number) => this.move((view, whole) => panned(view, by, whole));
  /**
   * Zooms as keys and buttons do: at the pointer, else at what is selected or was clicked, else in
   * the middle. What is shown never becomes empty by that: it would be lost.
   */
  zoomHere = (factor: number) => {
    const { shown: view, whole, width } = this;
    const share = (ns: number) => (ns - view.from) / length(view);
    const middle = (span: Span | null | undefined) => (span ? share((span.from + span.to) / 2) : null);
    const [event] = this.outlines;
    const wanted = [this.pointer, middle(event && { from: event.start, to: event.end }), middle(this.selected), this.clicked === null ? null : share(this.clicked)];
    const at = wanted.find((at) => at !== null && at >= 0 && at <= 1) ?? 0.5;
    const lanes = this.lanes.map((lane) => lane.id);
    const near = (span: Span, at: number) => nearestWork(this.source.tiles, lanes, span, width, span.from + length(span) * at);
    if (factor >= 1 || near(zoomed(view, factor, at, whole), at) !== null) return this.zoom(factor, at);
    const work = near(view, at);
    if (work === null) return this.say('Nothing happens in what is shown: press E to go to the nearest event.');
    this.zoom(factor, work === undefined ? at : share(work));
  };

  /** Whether no lane has anything in what is shown, as far as is known. */
  isEmpty = $derived.by(() => {
    void this.source.arrivals;
    if (!this.answer || this.lanes.length === 0) return false;
    return isEmpty(this.source.tiles, this.lanes.map((lane) => lane.id), this.shown, this.width);
  });

  /** To the event of the lanes that is nearest to what is shown. */
  async goToNearest() {
    const { from, to } = this.shown;
    const middle = (from + to) / 2;
    const distance = (lane: Lane) => Math.max(0, lane.start_ns - to, from - lane.end_ns);
    const lanes = this.lanes.filter((lane) => lane.kind !== 'device' && lane.count > 0);
    const nearest = lanes.toSorted((a, b) => distance(a) - distance(b)).slice(0, ASKED);
    const ask = (lane: string, step: string) => this.source.client.launch({ lane, at: Math.floor(middle), step }).catch(() => null);
    const all = await Promise.all(nearest.flatMap((lane) => [ask(lane.id, 'previous'), ask(lane.id, 'next')]));
    const found = all.flatMap((answer) => (answer?.event ? [answer.event] : []));
    const far = (launch: Launch) => Math.abs(launch.start_ns.value - middle);
    const [best] = found.sort((a, b) => far(a) - far(b));
    if (!best) return this.say('No event is near.');
    this.select(best.lane, best.start_ns.value);
    this.reveal(best.lane, best.start_ns.value);
  }

  all = () => this.move((_, whole) => whole);

  #toEnd() {
    this.shown = within({ from: this.whole.to - length(this.shown), to: this.whole.to }, this.whole);
  }

  follow() {
    this.following = !this.following;
    if (this.following) this.#toEnd();
  }

  /** Shows what the address says, when that changes, or when the session has grown. */
  synchronise() {
    const text = page.shown;
    const { whole, home, answer } = this;
    // (Until the session is known, nothing lies in it.)
    if (!answer) return;
    untrack(() => {
      if (text !== this.#written) {
        clearTimeout(this.#settled);
        this.#written = text;
        this.shown = text === ALL ? whole : within(spanOf(text) ?? home, whole);
      } else if (this.following) this.#toEnd();
      else if (!text) this.shown = home;
      else if (text === ALL) this.shown = whole;
    });
  }

  // --- The selected event.

  select(lane: string, at: number) {
    page.event = `${lane}@${Math.max(0, Math.floor(at))}`;
  }

  /** Looks the event of the address up; returns what ends that. */
  lookUp(): (() => void) | undefined {
    const [lane = '', at = ''] = page.event.split('@');
    const isNone = !/^\d{1,15}$/.test(at);
    // What is known of another event stays until that of this one comes.
    if (isNone) this.launch = this.missed = null;
    if (isNone || !this.answer) return undefined;
    if (!this.#groupOf(lane)) {
      untrack(() => this.#miss(`The timeline has no lane ${lane}.`, !this.#tells({ lane, at: Number(at) })));
      return undefined;
    }
    const request = new AbortController();
    void untrack(() => this.#ask({ lane, at: Number(at) }, request.signal));
    return () => request.abort();
  }

  async #ask(question: { lane: string; at: number; step?: string }, signal?: AbortSignal): Promise<Launch | null> {
    const isNew = signal !== undefined;
    if (this.source.deleted) return this.#miss(DELETED, isNew && !this.#tells(question));
    try {
      const { state, message, event } = await this.source.client.launch(question, signal);
      if (!this.source.holds({ state })) return this.#miss(DELETED, isNew && !this.#tells(question));
      // (What was found stays: its time may have changed a little, and a session may be unreadable
      // for a moment.)
      if (!event) return this.#miss(message ?? BUILDING, isNew && !this.#tells(question));
      this.launch = event;
      if (isNew) this.#asked = `${question.lane}@${question.at}`;
      this.missed = null;
      this.lane = event.lane;
      const took = event.duration_ns ? `, ${time(event.duration_ns.value)} ${event.duration_ns.kind}` : '';
      this.say(`${event.name ?? this.nameOf(event.use)} on ${this.laneName(event.lane)}, at ${precise(event.start_ns.value)}${took}.`);
      return event;
    } catch (error) {
      if (signal?.aborted) return null;
      return this.#miss(error instanceof Error ? error.message : String(error), isNew && !this.#tells(question));
    }
  }

  /** Whether the event that is told is the one at this time of a lane. */
  #tells({ lane, at }: { lane: string; at: number }): boolean {
    const { launch } = this;
    if (launch?.lane !== lane) return false;
    const start = Math.floor(launch.start_ns.value);
    return this.#asked === `${lane}@${at}` || (at >= start && at <= start + (launch.duration_ns?.value ?? 0) + 1);
  }

  /**
   * There is no such event. Where that was a step from the selected one, the selected one stays.
   */
  #miss(why: string, forgets: boolean): null {
    this.say(why);
    if (forgets) this.launch = null;
    if (forgets || !this.launch) this.missed = why;
    return null;
  }

  /** To the event of the same lane before or after the selected one. */
  async step(isNext: boolean) {
    const lane = this.launch?.lane ?? this.lane ?? this.lanes[0]?.id;
    if (!lane) return;
    const at = Math.floor(this.launch?.start_ns.value ?? (this.shown.from + this.shown.to) / 2);
    const of = this.lanes.find((one) => one.id === lane);
    const end = at + (this.launch?.duration_ns?.value ?? 0);
    if (of && (isNext ? end >= of.end_ns : at <= of.start_ns)) return this.say(`No event of ${this.laneName(lane)} is ${isNext ? 'after' : 'before'} this.`);
    const next = await this.#ask({ lane, at, step: isNext ? 'next' : 'previous' });
    if (!next) return;
    this.select(next.lane, next.start_ns.value);
    this.reveal(next.lane, next.start_ns.value);
  }

  /** To the launch found before or after the selected one, or to where there are some. */
  stepFound(isNext: boolean) {
    const streams = this.groups.flatMap((group) => group.lanes.flatMap((lane) => (lane.kind === 'stream' ? [lane.id] : [])));
    const own = this.launch?.start_ns.value;
    const at = own !== undefined && own >= this.shown.from && own <= this.shown.to ? own : (this.shown.from + this.shown.to) / 2;
    const hit = nearest(this.source.tiles.all(), at, isNext, new Set(streams));
    if (!hit) return this.say(`No launch is found ${isNext ? 'after' : 'before'} this among those that are shown: zoom out.`);
    if (hit.isEvent) this.select(hit.lane, hit.start);
    this.reveal(hit.lane, hit.start, hit.isEvent ? { from: hit.start, to: hit.end } : null);
  }

  /** Brings a time of a lane into view; closer to a span than it is shown, where there is one. */
  reveal(lane: string, at: number, closer: Span | null = null) {
    const group = this.#groupOf(lane);
    if (group && !this.lanes.some((one) => one.id === lane)) page.lanes = openText(new Set([...this.open, group.id]));
    if (closer && length(this.shown) > 41 * length(closer)) this.move((_, whole) => within({ from: closer.from - 20 * length(closer), to: closer.to + 20 * length(closer) }, whole));
    else this.move((view, whole) => reaching(view, at, whole));
    void tick().then(() => this.#scrollTo(lane));
  }

  #scrollTo(lane: string) {
    const row = this.rows.find((row) => row.lane?.id === lane);
    if (row) this.scroll(row.top, row.top + row.height);
  }

  // --- The selected span, gaps, lanes, the search.

  choose(span: Span | null) {
    page.span = span ? spanText(within(span, this.whole)) : '';
    if (span) this.say(`Selected: ${time(length(span))}, from ${between(span)}.`);
  }

  goToGap(index: number) {
    const gap = this.gaps[index];
    if (!gap) return;
    this.#gap = index;
    this.choose(gap);
    this.move((_, whole) => around(gap, whole));
    this.say(`Gap ${index + 1} of ${this.gaps.length}: ${gap.text}.`);
  }

  fit() {
    const event = this.outlines[0];
    const to = this.selected ?? (event ? { from: event.start, to: event.end } : null);
    if (to) this.move((_, whole) => around(to, whole));
  }

  toggle(group: Group) {
    const next = new Set(this.open);
    if (!next.delete(group.id)) next.add(group.id);
    page.lanes = openText(next);
  }

  #toLane(by: number) {
    const index = this.lanes.findIndex((one) => one.id === this.lane);
    const next = this.lanes[Math.min(this.lanes.length - 1, Math.max(0, index + by))];
    if (!next) return;
    this.lane = next.id;
    this.#scrollTo(next.id);
    this.say(this.laneName(next.id));
  }

  #pickMiddle() {
    const lane = this.lanes.find((one) => one.id === this.lane) ?? this.lanes[0];
    if (!lane) return;
    this.lane = lane.id;
    const middle = (this.shown.from + this.shown.to) / 2;
    const near = pointedAt(this.source.tiles, lane, this.shown, this.width, middle, this.width / 2);
    if (near.event) this.select(lane.id, near.event.start);
    else void this.pickNear(lane, middle);
  }

  /**
   * Selects the event of a lane at a time, or the last one before; the first one where there is
   * none.
   */
  async pickNear(lane: Lane, time: number) {
    this.lane = lane.id;
    const isBefore = time < lane.start_ns;
    const found = await this.#ask({ lane: lane.id, at: isBefore ? Math.max(0, lane.start_ns - 1) : Math.floor(time) + 1, step: isBefore ? 'next' : 'previous' });
    if (!found) return;
    this.select(found.lane, found.start_ns.value);
    this.reveal(found.lane, found.start_ns.value);
  }

  /** Kernels of the document that are searched for. */
  found() {
    const isFound = matcher(page.mark);
    return this.#doc().kernels.list.filter((kernel) => isFound(kernel.short_name));
  }

  #commands: Record<Command, (by: number) => void> = {
    pan: (by) => this.pan(by),
    zoom: (by) => this.zoomHere(by),
    whole: () => this.all(),
    end: () => this.move((view, whole) => within({ from: whole.to - length(view), to: whole.to }, whole)),
    lane: (by) => this.#toLane(by),
    step: (by) => void this.step(by > 0),
    found: (by) => page.mark && this.stepFound(by > 0),
    nearest: () => void this.goToNearest(),
    gap: () => this.goToGap((this.#gap + 1) % Math.max(1, this.gaps.length)),
    mark: () => this.choose(this.shown),
    fit: () => this.fit(),
    pick: () => this.#pickMiddle(),
    escape: () => (page.event ? (page.event = '') : this.choose(null)),
  };

  obey([command, by]: [Command, number]) {
    this.#commands[command](by);
  }
}
