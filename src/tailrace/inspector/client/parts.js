import { closeItem, listOf, newItem, newPart, setHead, setPart } from "./state.js";
export function addItem(run, task, event) {
    if (task.items.has(event.output_index))
        return false;
    const item = newItem(run, task, event.output_index, run.position, event.item);
    fill(item, event.item, run.position);
    return true;
}
export function finishItem(run, task, event) {
    const payload = event.item;
    let item = task.items.get(event.output_index);
    if (item === undefined) {
        item = newItem(run, task, event.output_index, run.position, payload);
    }
    else {
        if (!item.open || item.head.type !== payload.type)
            return false;
    }
    fill(item, payload, run.position);
    closeItem(run, item, payload.status ?? "completed");
    setHead(item, payload);
    return true;
}
function fill(item, payload, at) {
    for (const [list, parts] of item.lists) {
        const given = listOf(payload, list);
        if (list === "arguments")
            setArguments(parts, given?.[0], item.at);
        else if (given !== undefined)
            replaceParts(parts, given, at);
    }
}
function setArguments(parts, given, at) {
    const part = parts.get(0);
    if (part === undefined)
        parts.set(0, newPart(0, at, true, given ?? ""));
    else if (given !== undefined)
        setPart(part, given);
}
function replaceParts(parts, given, at) {
    const arrivals = new Map([...parts.values()].map((part) => [part.index, part.at]));
    parts.clear();
    given.forEach((value, index) => parts.set(index, newPart(index, arrivals.get(index) ?? at, false, value)));
}
function partsOf(task, event, list) {
    const item = task.items.get(event.output_index);
    return item !== undefined && item.open && item.head.id === event.item_id ? item.lists.get(list) : undefined;
}
function openPart(task, event, list, index, kind) {
    const part = partsOf(task, event, list)?.get(index);
    return part !== undefined && part.open && part.kind === kind ? part : undefined;
}
export function addPart(run, task, event, list, index, block) {
    const parts = partsOf(task, event, list);
    if (parts === undefined || parts.has(index))
        return false;
    parts.set(index, newPart(index, run.position, true, block));
    return true;
}
export function finishPart(run, task, event, list, index, value) {
    const parts = partsOf(task, event, list);
    if (parts === undefined)
        return false;
    const part = parts.get(index);
    if (part === undefined) {
        parts.set(index, newPart(index, run.position, false, value));
        return true;
    }
    if (!part.open || part.kind !== (typeof value === "string" ? "arguments" : value.type))
        return false;
    setPart(part, value);
    part.open = false;
    return true;
}
export function append(task, event, list, index, kind) {
    const part = openPart(task, event, list, index, kind);
    part?.pieces.push(event.delta);
    return part !== undefined;
}
export function annotate(task, event) {
    const part = openPart(task, event, "block_list", event.block_index, "text");
    part?.annotations.push(event.annotation);
    return part !== undefined;
}
export function replaceImage(task, event) {
    const part = openPart(task, event, "block_list", event.block_index, "image");
    if (part === undefined)
        return false;
    setPart(part, event.item);
    part.partialImageIndex = event.partial_image_index;
    return true;
}
