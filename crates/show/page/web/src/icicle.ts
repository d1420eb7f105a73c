// Call paths as boxes: each as wide as its share of its parent, below it.
import type { IdleNode, Node } from './document';

/** A node with what the width of its box measures. */
export interface Measured {
  name: string;
  kind: Node['kind'];
  file?: string;
  amount: number;
  children?: Measured[];
}

/** The tree of launches by GPU time or launches. */
export function byWork(node: Node, by: 'gpu_time_ns' | 'launches'): Measured {
  return { ...node, amount: node[by], children: node.children?.map((child) => byWork(child, by)) };
}

/** The tree of idle time. */
export function byIdleTime(node: IdleNode): Measured {
  return { ...node, amount: node.idle_ns, children: node.children?.map(byIdleTime) };
}

export interface Box {
  node: Measured;
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

export function layout(root: Measured): Box[] {
  const boxes: Box[] = [];
  const add = (node: Measured, parent: number, depth: number, left: number, width: number, path: string) => {
    const at = boxes.push({ node, parent, depth, left, width, path }) - 1;
    const whole = node.amount;
    let from = left;
    const children = (node.children ?? []).map((child, place) => ({ child, place }));
    children.sort((a, b) => b.child.amount - a.child.amount);
    for (const { child, place } of children) {
      const wide = whole > 0 ? (child.amount / whole) * width : 0;
      if (wide >= NARROWEST) add(child, at, depth + 1, from, wide, path ? `${path}.${place}` : `${place}`);
      from += wide;
    }
  };
  add(root, -1, 0, 0, 1, '');
  return boxes;
}

/** The node that a path leads to, as far as there is one. */
export function find(root: Measured, path: string): { node: Measured; path: string; names: string[] } {
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
