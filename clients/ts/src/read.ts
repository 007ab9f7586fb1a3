/**
 * Readers: they turn a parsed JSON value into a value of the protocol, or refuse it.
 *
 * They keep the known fields (or let unread fields pass) and leave out those that have their default value, so that two
 * ways of writing one thing become one. `shapes.ts` is written in their words.
 */

/** What a reader returns when the value is not what it reads. */
export const UNFIT: unique symbol = Symbol("unfit");

export type Reader = (value: unknown) => unknown;

/** How one field of a struct is read. */
export interface Field {
  readonly read: Reader;
  readonly required: boolean;
  /** Whether null says the same as leaving the field out. */
  readonly nullable: boolean;
  /** The value that says the same as leaving the field out. */
  readonly absent: unknown;
}

/** A reader of objects. `tag` is the value of its `type`, if it has one. */
export interface Struct extends Reader {
  readonly tag: string | null;
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export const string: Reader = (value) => (typeof value === "string" ? value : UNFIT);
export const number: Reader = (value) => (typeof value === "number" ? value : UNFIT);
export const integer: Reader = (value) => (Number.isSafeInteger(value) ? value : UNFIT);
export const boolean: Reader = (value) => (typeof value === "boolean" ? value : UNFIT);
export const json: Reader = (value) => value;

export function oneOf(...values: readonly string[]): Reader {
  return (value) => (values.includes(value as string) ? value : UNFIT);
}

export function list(element: Reader): Reader {
  return (value) => {
    if (!Array.isArray(value)) return UNFIT;
    const out: unknown[] = [];
    for (const each of value) {
      const read = element(each);
      if (read === UNFIT) return UNFIT;
      out.push(read);
    }
    return out;
  };
}

export function required(read: Reader): Field {
  return { read, required: true, nullable: false, absent: UNFIT };
}

export function optional(read: Reader): Field {
  return { read, required: false, nullable: true, absent: UNFIT };
}

export function defaulted(read: Reader, absent: unknown): Field {
  return { read, required: false, nullable: false, absent };
}

function isAbsent(value: unknown, absent: unknown): boolean {
  return value === absent || (Array.isArray(absent) && Array.isArray(value) && value.length === 0);
}

export function struct(tag: string | null, fields: Readonly<Record<string, Field>>): Struct {
  const names = Object.keys(fields);
  const readers = Object.values(fields);
  const read = (value: unknown): unknown => {
    if (!isObject(value) || (tag !== null && value["type"] !== tag)) return UNFIT;
    const out: Record<string, unknown> = tag === null ? {} : { type: tag };
    for (let n = 0; n < names.length; n += 1) {
      const name = names[n] as string;
      const field = readers[n] as Field;
      const given = value[name];
      if (given === undefined || (given === null && field.nullable)) {
        if (field.required) return UNFIT;
        continue;
      }
      const kept = field.read(given);
      if (kept === UNFIT) return UNFIT;
      if (field.absent === UNFIT || !isAbsent(kept, field.absent)) out[name] = kept;
    }
    return out;
  };
  return Object.assign(read, { tag });
}

const SCALARS: ReadonlySet<Reader> = new Set([string, number, integer, boolean]);

/**
 * A struct with the fields that every event has.
 *
 * An event of required scalars alone, such as a delta, is checked but not copied: most events are such.
 */
export function event(tag: string, fields: Readonly<Record<string, Field>>): Struct {
  const own = Object.values(fields);
  if (!own.every((field) => field.required && SCALARS.has(field.read))) {
    return struct(tag, { task_id: required(string), sequence_number: defaulted(integer, 0), ...fields });
  }
  const names = Object.keys(fields);
  const read = (value: unknown): unknown => {
    if (!isObject(value) || value["type"] !== tag || typeof value["task_id"] !== "string") return UNFIT;
    const number = value["sequence_number"];
    if (number !== undefined && !Number.isSafeInteger(number)) return UNFIT;
    for (let n = 0; n < names.length; n += 1) {
      if ((own[n] as Field).read(value[names[n] as string]) === UNFIT) return UNFIT;
    }
    return value;
  };
  return Object.assign(read, { tag });
}

/** One of several structs, distinguished by `type`. */
export function tagged(...structs: readonly Struct[]): Reader {
  const byTag = new Map(structs.map((each) => [each.tag, each]));
  return (value) => {
    const type = isObject(value) ? value["type"] : undefined;
    const read = typeof type === "string" ? byTag.get(type) : undefined;
    return read === undefined ? UNFIT : read(value);
  };
}
