import { UNFIT, isObject } from "./read.js";
import { ITEM_TYPES, SHAPES } from "./shapes.js";
const STATUSES = new Set(["in_progress", "completed", "incomplete", "failed"]);
export function decode(event) {
    const given = event;
    const type = given["type"];
    const read = typeof type === "string" ? SHAPES.get(type) : undefined;
    if (read === undefined)
        return undefined;
    const foreign = type === "task.output_item.added" || type === "task.output_item.done" ? asRaw(given["item"]) : undefined;
    const value = read(foreign === undefined ? given : { ...given, item: foreign });
    return value === UNFIT ? undefined : value;
}
function asRaw(item) {
    if (!isObject(item))
        return undefined;
    const { type, id, status } = item;
    if (typeof type !== "string" || ITEM_TYPES.has(type))
        return undefined;
    const raw = { type: "raw", id: typeof id === "string" ? id : "", raw: item };
    return STATUSES.has(status) ? { ...raw, status } : raw;
}
