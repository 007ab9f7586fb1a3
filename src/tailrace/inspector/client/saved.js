import { added } from "./fold.js";
import { byIndex, closeItem, headOf, listOf, newItem, newPart, newRun, newTask, parentOf, stepsOf } from "./state.js";
import { fieldsOf, ownItem } from "./view.js";
export function save(run, options = {}) {
    const withPrivate = options.private ?? false;
    return {
        version: 2,
        position: run.position,
        sequence_number: run.sequenceNumber,
        tasks: [...run.tasks.values()].map((task) => saveTask(task, withPrivate)),
        ...(run.unknown.length === 0 ? {} : { unknown: [...run.unknown] }),
    };
}
function saveTask(task, withPrivate) {
    const { steps: _steps, ...fields } = fieldsOf(task);
    const steps = stepsOf(task).map(([index, step], place) => ({
        ...step,
        ...(index === place ? {} : { step_index: index }),
    }));
    const items = [...task.items.values()].sort((a, b) => a.outputIndex - b.outputIndex);
    return {
        ...fields,
        ...(steps.length === 0 ? {} : { steps }),
        at: task.at,
        items: items.map((item) => saveItem(item, withPrivate)),
        ...(withPrivate && task.private !== undefined ? { private: task.private } : {}),
    };
}
function saveItem(item, withPrivate) {
    return {
        output_index: item.outputIndex,
        at: item.at,
        item: ownItem(item),
        parts: [...item.lists].flatMap(([list, parts]) => byIndex(parts).map((part) => savePart(list, part))),
        ...(item.open ? { open: true } : {}),
        ...(item.superseded ? { superseded: true } : {}),
        ...(withPrivate && item.private !== undefined ? { private: item.private } : {}),
    };
}
function savePart(list, part) {
    return {
        list,
        index: part.index,
        at: part.at,
        ...(part.open ? { open: true } : {}),
        ...(part.partialImageIndex === undefined ? {} : { partial_image_index: part.partialImageIndex }),
    };
}
export function restore(saved) {
    if (saved?.version !== 1 && saved?.version !== 2)
        throw new Error(`cannot restore a saved state of version ${String(saved?.version)}`);
    const run = newRun();
    run.position = saved.position;
    run.sequenceNumber = saved.sequence_number;
    for (const event of saved.unknown ?? [])
        run.unknown.push(event);
    for (const task of saved.tasks)
        restoreTask(run, task);
    const items = saved.tasks.flatMap((task) => task.items.map((item) => ({ task: task.task_id, item })));
    items.sort((a, b) => a.item.at - b.item.at);
    for (const { task: id, item } of items) {
        const task = run.tasks.get(id);
        if (task !== undefined)
            restoreItem(run, task, item);
    }
    if (saved.version === 1)
        addUsageBelow(run);
    return run;
}
function addUsageBelow(run) {
    for (const task of [...run.tasks.values()].reverse()) {
        const parent = parentOf(run, task);
        if (parent !== undefined && task.usage !== undefined)
            parent.usage = added(parent.usage, task.usage, true, task.usage.calls);
    }
}
function restoreTask(run, saved) {
    const { task_id: id, at, items: _items, private: hidden, ...fields } = saved;
    const { status, attempt, structured_output: output, usage, error, reason, requests, steps, notices, progress, imports, ...more } = fields;
    const { switches, compacted, ...info } = more;
    const task = newTask(run, id, at, switches === undefined ? info : begunBy(switches[0]?.from, info));
    task.switches.push(...(switches ?? []));
    task.compacted = compacted;
    task.status = status;
    task.attempt = attempt;
    task.structuredOutput = output;
    task.usage = usage;
    task.error = error;
    task.reason = reason;
    task.progress = progress;
    task.private = hidden;
    for (const notice of notices ?? [])
        task.notices.push(notice);
    for (const request of requests ?? [])
        task.requests.set(request.id, request);
    for (const found of imports ?? [])
        task.imports.set(found.reference_id, found);
    (steps ?? []).forEach(({ step_index: index, ...step }, place) => task.steps.set(index ?? place, { ...step }));
    task.openSteps = [...task.steps.values()].filter((step) => step.status === "in_progress").length;
}
function begunBy(first, info) {
    const { agent: _now, ...rest } = info;
    return first === undefined ? rest : { ...rest, agent: first };
}
function restoreItem(run, task, saved) {
    const { started, progress, ...payload } = saved.item;
    const given = payload;
    const item = newItem(run, task, saved.output_index, saved.at, given);
    item.head = headOf(given);
    item.started = started ?? false;
    item.progress = progress;
    item.superseded = saved.superseded ?? false;
    item.private = saved.private;
    for (const [list, parts] of item.lists) {
        const values = listOf(given, list) ?? [];
        saved.parts
            .filter((part) => part.list === list)
            .forEach(({ index, at, open, partial_image_index: partial }, place) => {
            const value = values[place];
            if (value === undefined)
                return;
            const part = newPart(index, at, open ?? false, value);
            part.partialImageIndex = partial;
            parts.set(index, part);
        });
    }
    if (!saved.open)
        closeItem(run, item, given.status ?? "completed");
}
