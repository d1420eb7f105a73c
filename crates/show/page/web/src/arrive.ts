// Scrolls to a section, and stays there while the page still grows: what comes later above it moves
// it away. Whoever uses the page meanwhile goes where they want.

/** After this time, nothing of the first layout is outstanding, ms. */
const LONGEST = 10_000;
const INPUT = ['wheel', 'touchstart', 'pointerdown', 'keydown'];

/** Scrolls to an element; returns what ends that. */
export function arrive(id: string): () => void {
  const scroll = () => document.getElementById(id)?.scrollIntoView();
  const watch = new ResizeObserver(scroll);
  const end = () => {
    watch.disconnect();
    clearTimeout(timer);
    for (const name of INPUT) removeEventListener(name, end, true);
  };
  const timer = setTimeout(end, LONGEST);
  for (const name of INPUT) addEventListener(name, end, true);
  scroll();
  watch.observe(document.body);
  return end;
}
