export { ApiError, Client } from "./client.js";
export { Follower } from "./follow.js";
export { SseParser } from "./sse.js";
export { RunState } from "./reducer.js";
