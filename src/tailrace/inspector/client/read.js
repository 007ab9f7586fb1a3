export const UNFIT = Symbol("unfit");
export function isObject(value) {
    return typeof value === "object" && value !== null && !Array.isArray(value);
}
export const string = (value) => (typeof value === "string" ? value : UNFIT);
export const number = (value) => (typeof value === "number" ? value : UNFIT);
export const integer = (value) => (Number.isSafeInteger(value) ? value : UNFIT);
export const boolean = (value) => (typeof value === "boolean" ? value : UNFIT);
export const json = (value) => value;
export function oneOf(...values) {
    return (value) => (values.includes(value) ? value : UNFIT);
}
export function list(element) {
    return (value) => {
        if (!Array.isArray(value))
            return UNFIT;
        const out = [];
        for (const each of value) {
            const read = element(each);
            if (read === UNFIT)
                return UNFIT;
            out.push(read);
        }
        return out;
    };
}
export function required(read) {
    return { read, required: true, nullable: false, absent: UNFIT };
}
export function optional(read) {
    return { read, required: false, nullable: true, absent: UNFIT };
}
export function defaulted(read, absent) {
    return { read, required: false, nullable: false, absent };
}
function isAbsent(value, absent) {
    return value === absent || (Array.isArray(absent) && Array.isArray(value) && value.length === 0);
}
export function struct(tag, fields) {
    const names = Object.keys(fields);
    const readers = Object.values(fields);
    const read = (value) => {
        if (!isObject(value) || (tag !== null && value["type"] !== tag))
            return UNFIT;
        const out = tag === null ? {} : { type: tag };
        for (let n = 0; n < names.length; n += 1) {
            const name = names[n];
            const field = readers[n];
            const given = value[name];
            if (given === undefined || (given === null && field.nullable)) {
                if (field.required)
                    return UNFIT;
                continue;
            }
            const kept = field.read(given);
            if (kept === UNFIT)
                return UNFIT;
            if (field.absent === UNFIT || !isAbsent(kept, field.absent))
                out[name] = kept;
        }
        return out;
    };
    return Object.assign(read, { tag });
}
const SCALARS = new Set([string, number, integer, boolean]);
export function event(tag, fields) {
    const own = Object.values(fields);
    if (!own.every((field) => field.required && SCALARS.has(field.read))) {
        return struct(tag, { task_id: required(string), sequence_number: defaulted(integer, 0), ...fields });
    }
    const names = Object.keys(fields);
    const read = (value) => {
        if (!isObject(value) || value["type"] !== tag || typeof value["task_id"] !== "string")
            return UNFIT;
        const number = value["sequence_number"];
        if (number !== undefined && !Number.isSafeInteger(number))
            return UNFIT;
        for (let n = 0; n < names.length; n += 1) {
            if (own[n].read(value[names[n]]) === UNFIT)
                return UNFIT;
        }
        return value;
    };
    return Object.assign(read, { tag });
}
export function tagged(...structs) {
    const byTag = new Map(structs.map((each) => [each.tag, each]));
    return (value) => {
        const type = isObject(value) ? value["type"] : undefined;
        const read = typeof type === "string" ? byTag.get(type) : undefined;
        return read === undefined ? UNFIT : read(value);
    };
}
