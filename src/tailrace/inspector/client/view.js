import { blockOf, byIndex, childrenOf, rootOf, stepsOf, textOf } from "./state.js";
export function viewOf(run, taskId, whole) {
    const root = rootOf(run);
    const task = taskId === undefined ? root : run.tasks.get(taskId);
    if (task === undefined)
        return undefined;
    const view = { ...fieldsOf(task), output: outputOf(task, whole), ...(whole ? hiddenOf(task.private) : {}) };
    if (task !== root)
        return view;
    const others = [...run.tasks.values()].slice(1).map((other) => ({
        ...fieldsOf(other),
        ...(whole ? { output: outputOf(other, true), ...hiddenOf(other.private) } : {}),
    }));
    return {
        ...view,
        ...(others.length === 0 ? {} : { tasks: others }),
        ...(run.unknown.length === 0 ? {} : { unknown: [...run.unknown] }),
    };
}
export function fieldsOf(task) {
    const fields = { task_id: task.id, ...task.info };
    if (task.status !== undefined)
        fields.status = task.status;
    const last = task.switches.at(-1);
    if (last !== undefined) {
        fields.agent = last.agent;
        fields.switches = [...task.switches];
    }
    if (task.compacted !== undefined)
        fields.compacted = task.compacted;
    if (task.attempt !== undefined)
        fields.attempt = task.attempt;
    if (task.structuredOutput !== undefined)
        fields.structured_output = task.structuredOutput;
    if (task.usage !== undefined)
        fields.usage = task.usage;
    if (task.error !== undefined)
        fields.error = task.error;
    if (task.reason !== undefined)
        fields.reason = task.reason;
    if (task.requests.size > 0)
        fields.requests = [...task.requests.values()];
    if (task.steps.size > 0)
        fields.steps = stepsOf(task).map(([, step]) => ({ ...step }));
    if (task.notices.length > 0)
        fields.notices = [...task.notices];
    if (hasAny(task.progress))
        fields.progress = task.progress;
    if (task.imports.size > 0)
        fields.imports = [...task.imports.values()];
    return fields;
}
function outputOf(task, whole) {
    return [...task.items.values()]
        .filter((item) => !item.superseded)
        .sort((a, b) => a.outputIndex - b.outputIndex)
        .map((item) => (whole ? wholeItem(item) : itemView(item)));
}
export function ownItem(item) {
    return shown(item, itemBlocks(item));
}
export function itemView(item) {
    return shown(item, item.head.type === "tool_result" ? resultBlocks(item) : itemBlocks(item));
}
function shown(item, blocks) {
    const view = { ...item.head };
    for (const [list, parts] of item.lists) {
        if (list === "block_list")
            view[list] = blocks;
        else if (list === "arguments")
            view[list] = [...parts.values()].map(textOf).join("");
        else if (list === "summary" || parts.size > 0)
            view[list] = byIndex(parts).map(blockOf);
    }
    if (item.status !== "completed")
        view["status"] = item.status;
    if (item.started)
        view["started"] = true;
    if (hasAny(item.progress))
        view["progress"] = item.progress;
    return view;
}
function partsOf(item, list) {
    return byIndex(item.lists.get(list) ?? new Map());
}
function itemBlocks(item) {
    return partsOf(item, "block_list").map(blockOf);
}
function resultBlocks(item) {
    const arrived = [];
    for (const part of partsOf(item, "block_list"))
        arrived.push({ at: part.at, show: () => blockOf(part) });
    for (const child of childrenOf(item)) {
        for (const each of child.items.values()) {
            if (!each.superseded)
                arrived.push({ at: each.at, show: () => ({ ...itemView(each), task_id: child.id }) });
        }
    }
    return arrived.sort((a, b) => a.at - b.at).map((one) => one.show());
}
function wholeItem(item) {
    const content = contentOf(item);
    return { ...itemView(item), ...(content === undefined ? {} : { content }), ...hiddenOf(item.private) };
}
function contentOf(item) {
    if (item.head.type !== "tool_result" && item.head.type !== "message")
        return undefined;
    if (item.private?.content !== undefined || item.head.type === "tool_result")
        return item.private?.content;
    const texts = partsOf(item, "block_list").filter((part) => part.kind === "text");
    return texts.map((part) => ({ type: "text", text: textOf(part) }));
}
function hiddenOf(hidden) {
    if (hidden === undefined)
        return {};
    const { content: _content, ...rest } = hidden;
    return hasAny(rest) ? { private: rest } : {};
}
function hasAny(value) {
    return value !== undefined && Object.keys(value).length > 0;
}
