const LISTS = {
    reasoning: ["summary", "reasoning_text"],
    tool_call: ["arguments"],
    tool_result: ["block_list"],
    message: ["block_list"],
    raw: [],
};
const ENDED = new Set(["completed", "incomplete", "failed", "cancelled"]);
export function newRun() {
    return { position: 0, sequenceNumber: 0, tasks: new Map(), unknown: [], openResults: new Map() };
}
export function newTask(run, id, at, info) {
    const task = {
        id,
        at,
        info,
        status: undefined,
        attempt: undefined,
        items: new Map(),
        calls: new Map(),
        results: new Map(),
        children: new Map(),
        structuredOutput: undefined,
        switches: [],
        compacted: undefined,
        usage: undefined,
        error: undefined,
        reason: undefined,
        requests: new Map(),
        steps: new Map(),
        openSteps: 0,
        notices: [],
        progress: undefined,
        imports: new Map(),
        private: undefined,
    };
    const { parent_task_id: parentId, call_id: callId } = info;
    if (parentId !== undefined && callId !== undefined) {
        const siblings = run.tasks.get(parentId)?.children;
        const ofCall = siblings?.get(callId);
        if (ofCall === undefined)
            siblings?.set(callId, [task]);
        else
            ofCall.push(task);
    }
    run.tasks.set(id, task);
    return task;
}
export function hasEnded(task) {
    return ENDED.has(task.status);
}
export function stepsOf(task) {
    return [...task.steps].sort(([a], [b]) => a - b);
}
export function rootOf(run) {
    for (const task of run.tasks.values())
        return task;
    return undefined;
}
export function openResult(run, callId) {
    let last;
    for (const item of run.openResults.get(callId) ?? [])
        last = item;
    return last;
}
export function parentOf(run, task) {
    const id = task.info.parent_task_id;
    return id === undefined ? undefined : run.tasks.get(id);
}
export function childrenOf(result) {
    const { head, task } = result;
    if (head.type !== "tool_result" || task.results.get(head.call_id) !== result)
        return [];
    return task.children.get(head.call_id) ?? [];
}
export function headOf(payload) {
    const head = { ...payload };
    delete head["status"];
    for (const list of LISTS[payload.type])
        delete head[list];
    return head;
}
export function listOf(payload, list) {
    const value = payload[list];
    return typeof value === "string" ? [value] : value;
}
export function newItem(run, task, outputIndex, at, payload) {
    const item = {
        task,
        outputIndex,
        at,
        head: headOf(payload),
        lists: new Map(LISTS[payload.type].map((list) => [list, new Map()])),
        open: true,
        status: "in_progress",
        superseded: false,
        started: false,
        progress: undefined,
        private: undefined,
    };
    task.items.set(outputIndex, item);
    indexCall(item);
    if (payload.type === "tool_result") {
        const open = run.openResults.get(payload.call_id);
        if (open === undefined)
            run.openResults.set(payload.call_id, new Set([item]));
        else
            open.add(item);
    }
    return item;
}
function indexCall(item) {
    const { task, head } = item;
    if (head.type !== "tool_call" && head.type !== "tool_result")
        return;
    const index = head.type === "tool_call" ? task.calls : task.results;
    if (!index.has(head.call_id))
        index.set(head.call_id, item);
}
export function setHead(item, payload) {
    const before = item.head;
    item.head = headOf(payload);
    if (!("call_id" in before) || !("call_id" in item.head) || before.call_id === item.head.call_id)
        return;
    const { task } = item;
    task.calls.clear();
    task.results.clear();
    for (const each of [...task.items.values()].sort((a, b) => a.at - b.at))
        indexCall(each);
}
export function closeItem(run, item, status) {
    item.open = false;
    item.status = status;
    for (const parts of item.lists.values())
        for (const part of parts.values())
            part.open = false;
    if (item.head.type !== "tool_result")
        return;
    const open = run.openResults.get(item.head.call_id);
    open?.delete(item);
    if (open?.size === 0)
        run.openResults.delete(item.head.call_id);
}
export function newPart(index, at, open, value) {
    const part = {
        index,
        at,
        open,
        kind: "arguments",
        block: undefined,
        pieces: [],
        annotations: [],
        partialImageIndex: undefined,
    };
    setPart(part, value);
    return part;
}
export function setPart(part, value) {
    part.annotations = [];
    part.block = undefined;
    if (typeof value === "string") {
        part.kind = "arguments";
        part.pieces = [value];
        return;
    }
    part.kind = value.type;
    part.block = value;
    if (value.type === "text") {
        part.pieces = [value.text];
        part.annotations = [...(value.annotations ?? [])];
    }
    else if (value.type === "refusal") {
        part.pieces = [value.refusal];
    }
}
export function textOf(part) {
    if (part.pieces.length > 1)
        part.pieces = [part.pieces.join("")];
    return part.pieces[0] ?? "";
}
export function blockOf(part) {
    const block = part.block;
    if (block === undefined)
        throw new TypeError("arguments are no block");
    if (block.type === "refusal")
        return { type: "refusal", refusal: textOf(part) };
    if (block.type !== "text")
        return block;
    const text = { type: block.type, text: textOf(part), ...(block.id === undefined ? {} : { id: block.id }) };
    return part.annotations.length === 0 ? text : { ...text, annotations: [...part.annotations] };
}
export function byIndex(parts) {
    return [...parts.values()].sort((a, b) => a.index - b.index);
}
