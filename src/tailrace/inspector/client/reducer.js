import { fold } from "./fold.js";
import { restore, save } from "./saved.js";
import { newRun } from "./state.js";
import { fieldsOf, ownItem, viewOf } from "./view.js";
export class RunState {
    #run = newRun();
    static restore(saved) {
        const state = new RunState();
        state.#run = restore(saved);
        return state;
    }
    get sequenceNumber() {
        return this.#run.sequenceNumber;
    }
    get position() {
        return this.#run.position;
    }
    get taskIds() {
        return [...this.#run.tasks.keys()];
    }
    apply(event, hidden) {
        if (typeof event !== "object" || event === null || Array.isArray(event))
            return false;
        return fold(this.#run, event, hidden);
    }
    receive(frame) {
        if (frame.type === "task.snapshot") {
            this.#run = restore(frame.state);
            return true;
        }
        if (frame.type === "task.gap") {
            this.#run = newRun();
            return true;
        }
        return this.apply(frame);
    }
    view(taskId) {
        return viewOf(this.#run, taskId, false);
    }
    item(taskId, outputIndex) {
        const item = this.#run.tasks.get(taskId)?.items.get(outputIndex);
        return item === undefined || item.superseded ? undefined : ownItem(item);
    }
    fields(taskId) {
        const task = this.#run.tasks.get(taskId);
        return task === undefined ? undefined : fieldsOf(task);
    }
    indexes(taskId) {
        const items = this.#run.tasks.get(taskId)?.items ?? new Map();
        return [...items.values()].filter((item) => !item.superseded).map((item) => item.outputIndex).sort((a, b) => a - b);
    }
    whole(taskId) {
        return viewOf(this.#run, taskId, true);
    }
    save(options = {}) {
        return save(this.#run, options);
    }
}
