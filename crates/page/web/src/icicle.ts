// Call paths as boxes: each as wide as its share of its parent, below it.
import type { Node } from './document';

export interface Box {
  node: Node;
  /** Index of the box that it lies below; -1 of the root. */
  parent: number;
  depth: number;
  /** Shares of the whole width. */
  left: number;
  width: number;
  /** Places among the children, from the root: `0.2.1`. */
  path: string;
}

/** Narrower boxes are not drawn. */
const NARROWEST = 0.0015;

export function layout(root: Node, by: 'gpu_time_ns' | 'launches'): Box[] {
  const boxes: Box[] = [];
  const add = (node: Node, parent: number, depth: number, left: number, width: number, path: string) => {
    const at = boxes.push({ node, parent, depth, left, width, path }) - 1;
    const whole = node[by];
    let from = left;
    const children = (node.children ?? []).map((child, place) => ({ child, place }));
    children.sort((a, b) => b.child[by] - a.child[by]);
    for (const { child, place } of children) {
      const wide = whole > 0 ? (child[by] / whole) * width : 0;
      if (wide >= NARROWEST) add(child, at, depth + 1, from, wide, path ? `${path}.${place}` : `${place}`);
      from += wide;
    }
  };
  add(root, -1, 0, 0, 1, '');
  return boxes;
}

/** The node that a path leads to, as far as there is one. */
export function find(root: Node, path: string): { node: Node; path: string; names: string[] } {
  let node = root;
  const names: string[] = [];
  const taken: string[] = [];
  for (const place of path.split('.').filter(Boolean)) {
    const child = node.children?.[Number(place)];
    if (!child) break;
    node = child;
    names.push(child.name);
    taken.push(place);
  }
  return { node, path: taken.join('.'), names };
}
