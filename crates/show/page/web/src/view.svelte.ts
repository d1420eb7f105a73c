// What of the page is shown: it stands in the URL's fragment, so that a link shows the same.

export interface View {
  /** Section that is scrolled to. */
  at: string;
  theme: '' | 'light' | 'dark';
  /** Text that kernels are searched for. */
  find: string;
  /** Column by which kernels are sorted, `-` before it for the other direction. */
  sort: string;
  /** Rows of the table of kernels: kernels in their configurations, or functions. */
  rows: '' | 'function';
  /** Kernel whose page is open, and what is changed of it there. */
  kernel: string;
  change: string;
  /** Order of its lines. */
  lines: '' | 'worst';
  /** What the flame graph measures. */
  by: '' | 'launches' | 'idle';
  /** Path of places from the root of the flame graph. */
  zoom: string;
  /**
   * Of the timeline: the time that is shown, the span that is selected (`FROM-TO` in ns), the
   * groups that are open, the event that is selected (`LANE@START`), the kernels that are
   * highlighted.
   */
  shown: string;
  span: string;
  lanes: string;
  event: string;
  mark: string;
  /** Of `apex dashboard`: the session, and the part of it that the server is asked for. */
  session: string;
  last: string;
  phase: string;
  only: string;
  window: string;
  rank: string;
  /** Sessions that the shown one is compared with, with commas between. */
  before: string;
}

const NOTHING: View = {
  at: '', theme: '', find: '', sort: '', rows: '', kernel: '', change: '', lines: '', by: '', zoom: '', shown: '', span: '', lanes: '', event: '', mark: '',
  session: '', last: '', phase: '', only: '', window: '', rank: '', before: '',
};

function read(): View {
  const found = new URLSearchParams(location.hash.slice(1));
  const view: Record<string, string> = { ...NOTHING };
  for (const key of Object.keys(NOTHING)) view[key] = found.get(key) ?? '';
  return view as unknown as View;
}

export const view: View = $state(read());

/** The fragment of the present view with some changes. */
export function link(changes: Partial<View>): string {
  const all = Object.entries({ ...view, ...changes }).filter(([, value]) => value !== '');
  return `#${new URLSearchParams(all)}`;
}

/** Keeps the URL and the view the same; returns what ends that. */
export function follow(): () => void {
  const changed = () => Object.assign(view, read());
  addEventListener('hashchange', changed);
  const stop = $effect.root(() => {
    $effect(() => {
      const wanted = link({});
      if (wanted !== (location.hash || '#')) history.replaceState(null, '', wanted);
    });
  });
  return () => {
    removeEventListener('hashchange', changed);
    stop();
  };
}
