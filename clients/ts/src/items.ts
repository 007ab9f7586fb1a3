// Generated from conformance/schema.json by scripts/generate_ts_types.py: do not edit.

/** Any JSON value, for a front end that knows what `name` means. */
export interface Data {
  readonly type: "data";
  readonly data: unknown;
  readonly name?: string;
  readonly id?: number;
}

/** An error that clients may see. */
export interface ErrorInfo {
  readonly code: string;
  readonly message: string;
  readonly param?: string;
  readonly retry_after?: number;
}

/**
 * A file that the client may fetch.
 *
 * With `bucket` and `path` it is an attachment: a file in the application's own storage.
 */
export interface File {
  readonly type: "file";
  readonly url: string;
  readonly mime_type?: string;
  readonly name?: string;
  readonly size?: number;
  readonly sha256?: string;
  readonly bucket?: string;
  readonly path?: string;
  readonly id?: number;
}

/** A citation of a file at the provider (file search, containers). */
export interface FileCitation {
  readonly type: "file_citation";
  readonly file_id: string;
  readonly filename?: string;
  readonly index?: number;
  readonly container_id?: string;
  readonly start_index?: number;
  readonly end_index?: number;
}

/** A whole image. */
export interface Image {
  readonly type: "image";
  readonly image_url: ImageUrl;
  readonly id?: number;
}

/** The URL of an image: a `data:` URL, or any URL that an `<img>` can load. */
export interface ImageUrl {
  readonly url: string;
}

/**
 * A request of a paused task: the approval of a call, or a value.
 *
 * `name` and `arguments` are those of the call, so that a client can show what it approves or
 * carry the call out. `arguments` is a JSON value, as the `value` of an answer is.
 */
export interface InputRequest {
  readonly id: string;
  readonly kind: "approval" | "input";
  readonly call_id?: string;
  readonly name?: string;
  readonly arguments?: unknown;
  readonly message?: string;
  readonly schema?: unknown;
}

/** A message of the agent. */
export interface Message {
  readonly type: "message";
  readonly id: string;
  readonly role: string;
  readonly block_list?: readonly Block[];
  readonly status?: "completed" | "failed" | "in_progress" | "incomplete";
  readonly phase?: string;
}

/** An annotation of an unknown kind, unchanged. */
export interface RawAnnotation {
  readonly type: "raw";
  readonly raw: unknown;
}

/** An item of an unknown kind, unchanged. */
export interface RawItem {
  readonly type: "raw";
  readonly id: string;
  readonly raw: unknown;
  readonly source?: string;
  readonly status?: "completed" | "failed" | "in_progress" | "incomplete";
}

/** The model's thinking: a summary in parts, and the raw text if the provider sends it. */
export interface Reasoning {
  readonly type: "reasoning";
  readonly id: string;
  readonly summary?: readonly Text[];
  readonly reasoning_text?: readonly Text[];
  readonly status?: "completed" | "failed" | "in_progress" | "incomplete";
}

/**
 * A citation: `[^reference_id]` stands at [start_index, end_index) of the text.
 *
 * Offsets count Unicode code points of the block's final text, half-open, marker included. The
 * number belongs to the pool of the task whose item holds the annotation.
 */
export interface ReferenceToBlock {
  readonly type: "reference_to_block";
  readonly reference_id: number;
  readonly start_index: number;
  readonly end_index: number;
}

/** The model's explanation why it does not answer. */
export interface Refusal {
  readonly type: "refusal";
  readonly refusal: string;
}

/** A text; also a part of a reasoning summary. */
export interface Text {
  readonly type: "text";
  readonly text: string;
  readonly id?: number;
  readonly annotations?: readonly Annotation[];
}

/**
 * The model calls a tool. `kind` is `function`, or the name of a provider's built-in tool.
 *
 * With `needs_approval` people may be asked before the tool starts.
 */
export interface ToolCall {
  readonly type: "tool_call";
  readonly id: string;
  readonly call_id: string;
  readonly name: string;
  readonly arguments?: string;
  readonly kind?: string;
  readonly executor?: "client" | "provider" | "server";
  readonly server_label?: string;
  readonly needs_approval?: boolean;
  readonly status?: "completed" | "failed" | "in_progress" | "incomplete";
}

/** The result of a call, as blocks for the client. A sub-agent's items are among them. */
export interface ToolResult {
  readonly type: "tool_result";
  readonly id: string;
  readonly call_id: string;
  readonly block_list?: readonly Block[];
  readonly status?: "completed" | "failed" | "in_progress" | "incomplete";
  readonly error?: ErrorInfo;
}

/** A citation by the provider (web search), with the same kind of offsets. */
export interface UrlCitation {
  readonly type: "url_citation";
  readonly url: string;
  readonly start_index: number;
  readonly end_index: number;
  readonly title?: string;
}

/**
 * The usage of a model call. The fold adds it to its task and to every task above.
 *
 * `input_tokens` includes cached tokens, as OpenAI counts; `output_tokens` includes reasoning.
 */
export interface Usage {
  readonly model?: string;
  readonly input_tokens?: number;
  readonly output_tokens?: number;
  readonly cached_input_tokens?: number;
  readonly cache_write_tokens?: number;
  readonly reasoning_tokens?: number;
  readonly cost?: number;
  readonly latency_ms?: number;
  readonly time_to_first_token_ms?: number;
  readonly service_tier?: string;
}

export type Annotation = ReferenceToBlock | UrlCitation | FileCitation | RawAnnotation;

export type Block = Text | Image | Refusal | Data | File;

export type Item = Reasoning | ToolCall | ToolResult | Message | RawItem;
