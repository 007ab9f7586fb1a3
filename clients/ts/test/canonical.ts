// Canonical JSON as in RFC 8785, and its digest: equal values have equal bytes.

import { createHash } from "node:crypto";

export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value ?? null);
  const fields = value as Record<string, unknown>;
  const names = Object.keys(fields).filter((name) => fields[name] !== undefined);
  // The default order of strings is that of their UTF-16 code units.
  return `{${names.sort().map((name) => `${JSON.stringify(name)}:${canonical(fields[name])}`).join(",")}}`;
}

export function digest(value: unknown): string {
  return createHash("sha256").update(canonical(value), "utf8").digest("hex");
}
