export { ApiError, Client } from "./client.ts";
export type { Answer, ClientOptions, StartedRun, StartOptions } from "./client.ts";
export { Follower } from "./follow.ts";
export type { FollowOptions, FollowStatus, GivenHeaders } from "./follow.ts";
export { SseParser } from "./sse.ts";
export type { ServerSentEvent } from "./sse.ts";
export { RunState } from "./reducer.ts";
export type { Frame, GapFrame, SnapshotFrame } from "./reducer.ts";
export type { UnknownEvent } from "./decode.ts";
export type { SaveOptions, SavedItem, SavedPart, SavedState, SavedTask } from "./saved.ts";
export type { PrivatePart } from "./state.ts";
export type {
  ChildItemView,
  ItemView,
  MessageView,
  RawItemView,
  ReasoningView,
  TaskFields,
  TaskView,
  ToolCallView,
  ToolResultView,
} from "./view.ts";
export type * from "./events.ts";
export type * from "./items.ts";
