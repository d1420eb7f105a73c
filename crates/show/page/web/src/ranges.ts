// Names of ranges as they are read: XLA and TensorFlow encode fields in the name of a range,
// `XlaModule:#prefix=jit(mul)/mul,hlo_module=jit_mul,program_id=21#`.

export interface RangeName {
  /** What is read. */
  name: string;
  /** What else the name holds, empty where there is nothing. */
  detail: string;
}

const ENCODED = /^([^#]*?):?#(.*)#$/s;
/** A comma ends a field only before the next key, for values may hold commas. */
const BETWEEN = /,(?=[A-Za-z_]\w*=)/;
/** The operation is more specific than the module that it belongs to. */
const NAMES = ['hlo_op', 'hlo_module', 'long_name'];
/** Where in the program it comes from. */
const ORIGINS = ['prefix', 'name'];
/** Characters of a name that is read at a glance. */
const LONGEST = 120;

const short = (text: string) => (text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text);

/** The raw name in readable parts; others than encoded ones stay, cut where they are very long. */
export function rangeName(raw: string): RangeName {
  const found = ENCODED.exec(raw);
  if (!found) return { name: short(raw), detail: '' };
  const [, kind = '', encoded = ''] = found;
  const fields = encoded.split(BETWEEN).flatMap((field) => {
    const at = field.indexOf('=');
    const [key, value] = at < 0 ? [field, ''] : [field.slice(0, at), field.slice(at + 1)];
    return value === '' ? [] : [{ key, value }];
  });
  const first = (keys: string[]) => keys.map((key) => fields.find((field) => field.key === key)).find(Boolean);
  const [named, origin] = [first(NAMES), first(ORIGINS)];
  // (Identifiers tell a reader nothing.)
  const rest = fields.filter((field) => field !== named && field !== origin && !/(^|_)ids?$/.test(field.key)).map(({ key, value }) => `${key}=${value}`);
  const name = named?.value ?? (kind || raw);
  return { name: short(name), detail: short([named ? kind : '', origin?.value ?? '', ...rest].filter(Boolean).join(', ')) };
}

/** The readable name in one line. */
export function rangeText(raw: string): string {
  const { name, detail } = rangeName(raw);
  return detail ? `${name} (${detail})` : name;
}
