"""A scripted model on loopback that coding agents take for their provider.

One server speaks Anthropic Messages, OpenAI Responses, OpenAI Chat Completions and Gemini's
streamGenerateContent. It keeps no state: a request holds its whole conversation, and the answer is
the message of a script whose number is the count of tool results since the script was named. So a
request that comes twice gets the same answer twice. A script is named by a word of a user's text;
a subagent gets its script by the word in its own prompt.

A script is a list of messages, and a message is a list of calls `(tool, input)`, or `Later` with
what happens before it is sent. After the last message the model says `FAREWELL`. A request without
tools (titles, summaries) gets that at once.
"""

import json
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAREWELL = "All done."
MAX_REQUEST_BYTES = 64 << 20
REQUEST_SECONDS = 30
USAGE = {"input_tokens": 1, "output_tokens": 1}


class Later(list):
    """A message that is sent when `event()` has returned; that has to be soon."""

    def __init__(self, event, message):
        super().__init__(message)
        self.event = event


class Model:
    """The server, as long as the `with` block lasts. `scripts`: word -> messages."""

    def __init__(self, scripts):
        self.scripts = scripts
        # What the model saw: (word, number of the result since the word, text).
        self.results = {}
        self.complaints = []
        # The bodies of the requests, oldest first.
        self.requests = []
        model = self

        class Handler(Exchange):
            def answer(self, path, request):
                return model.answer(path, request)

            def complain(self, text):
                model.complaints.append(text)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def answer(self, path, request):
        """The events of the answer to a request, or `None` where nothing is known of its path."""
        for suffix, protocol in PROTOCOLS.items():
            if path.endswith(suffix):
                self.requests.append(json.dumps(request, ensure_ascii=False))
                conversation = list(protocol.conversation(request))
                message = self.next_message(conversation) if request.get("tools") else []
                return protocol.events(message, request)
        return None

    def next_message(self, conversation):
        word, results = None, []
        for kind, text in conversation:
            if kind == "result":
                results.append(text)
                continue
            named = [known for known in self.scripts if known in text]
            if named:
                word, results = named[-1], []
        if word is None:
            return []
        for number, text in enumerate(results):
            self.results[word, number] = text
        left = len(results)
        for message in self.scripts[word]:
            if left == 0:
                if isinstance(message, Later):
                    message.event()
                # Not the word itself: clients quote ids in texts of the user's.
                script = list(self.scripts).index(word)
                return [(f"{script}_{len(results) + at}", *c) for at, c in enumerate(message)]
            left -= len(message)
            if left < 0:
                raise ValueError(f"{word}: a message's calls were answered in part")
        return []


class Exchange(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = REQUEST_SECONDS

    def do_GET(self):
        self.reply("application/json", b'{"data": [], "models": []}')

    do_HEAD = do_GET

    def do_POST(self):
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_REQUEST_BYTES:
            return self.send_error(413)
        path = self.path.split("?")[0]
        body = self.rfile.read(length)
        if path.endswith(("count_tokens", ":countTokens")):
            return self.reply("application/json", b'{"input_tokens": 1, "totalTokens": 1}')
        try:
            request = json.loads(body)
            events = self.answer(path, request)
        except Exception as error:  # a client must not be left waiting by a mistake in a script
            self.complain(f"{path}: {error!r}")
            return self.send_error(400)
        if events is None:
            return self.send_error(404)
        if isinstance(events, dict):
            return self.reply("application/json", json.dumps(events).encode())
        lines = [
            (f"event: {name}\n" if name else "")
            + f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n"
            for name, data in events
        ]
        return self.reply("text/event-stream", "".join(lines).encode())

    def reply(self, kind, body):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


def fresh(kind):
    """An id of its own for each message: clients join what has the same."""
    return f"{kind}_{uuid.uuid4().hex}"


def text_of(content):
    """The text of a content, which is a string or a list of blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text_of(block) for block in content)
    if isinstance(content, dict):
        return text_of(content.get("text") or content.get("content") or "")
    return ""


class Anthropic:
    """https://docs.anthropic.com/en/api/messages-streaming"""

    @staticmethod
    def conversation(request):
        for message in request["messages"]:
            content = message["content"]
            for block in [content] if isinstance(content, str) else content:
                if isinstance(block, dict) and block.get("type") == "tool_result":
                    yield "result", text_of(block.get("content"))
                elif message["role"] == "user":
                    yield "user", text_of(block)

    @staticmethod
    def events(calls, request):
        blocks = [
            {"type": "tool_use", "id": f"toolu_{id}", "name": tool, "input": input}
            for id, tool, input in calls
        ] or [{"type": "text", "text": FAREWELL}]
        stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
        message = {
            "id": fresh("msg"), "type": "message", "role": "assistant", "content": blocks,
            "model": request.get("model", "scripted"), "usage": USAGE, **stop,
        }
        if not request.get("stream"):
            return message

        def stream():
            yield "message_start", {
                "type": "message_start",
                "message": {**message, "content": [], "stop_reason": None},
            }
            for index, block in enumerate(blocks):
                if block["type"] == "text":
                    empty, delta = {"text": ""}, {"type": "text_delta", "text": block["text"]}
                else:
                    partial = json.dumps(block["input"])
                    empty = {"input": {}}
                    delta = {"type": "input_json_delta", "partial_json": partial}
                at = {"index": index}
                yield "content_block_start", {
                    "type": "content_block_start", **at, "content_block": {**block, **empty},
                }
                yield "content_block_delta", {"type": "content_block_delta", **at, "delta": delta}
                yield "content_block_stop", {"type": "content_block_stop", **at}
            yield "message_delta", {"type": "message_delta", "delta": stop, "usage": USAGE}
            yield "message_stop", {"type": "message_stop"}

        return stream()


class Responses:
    """https://platform.openai.com/docs/api-reference/responses-streaming"""

    @staticmethod
    def conversation(request):
        for item in request["input"]:
            if item.get("type") in ("function_call_output", "custom_tool_call_output"):
                yield "result", text_of(item.get("output"))
            elif item.get("role") == "user":
                yield "user", text_of(item.get("content"))

    @staticmethod
    def events(calls, _request):
        items = []
        for id, tool, input in calls:
            call = {"id": f"fc_{id}", "call_id": f"call_{id}", "status": "completed"}
            if isinstance(input, str):
                call |= {"type": "custom_tool_call", "name": tool, "input": input}
            else:
                namespace, _, name = tool.rpartition("/")
                call |= {"type": "function_call", "name": name, "arguments": json.dumps(input)}
                call |= {"namespace": namespace} if namespace else {}
            items.append(call)
        text = {"type": "output_text", "text": FAREWELL, "annotations": []}
        items = items or [
            {"type": "message", "id": fresh("msg"), "role": "assistant", "content": [text]}
        ]
        usage = {**USAGE, "total_tokens": 2}
        response = {"id": fresh("resp"), "object": "response", "output": items, "usage": usage}

        def stream():
            begun = {**response, "output": [], "status": "in_progress"}
            yield "response.created", {"type": "response.created", "response": begun}
            for index, item in enumerate(items):
                for kind in ("response.output_item.added", "response.output_item.done"):
                    yield kind, {"type": kind, "output_index": index, "item": item}
            done = {**response, "status": "completed"}
            yield "response.completed", {"type": "response.completed", "response": done}

        return stream()


class ChatCompletions:
    """https://platform.openai.com/docs/api-reference/chat-streaming"""

    @staticmethod
    def conversation(request):
        for message in request["messages"]:
            if message["role"] == "tool":
                yield "result", text_of(message["content"])
            elif message["role"] == "user":
                yield "user", text_of(message["content"])

    @staticmethod
    def events(calls, request):
        tool_calls = [
            {
                "index": index, "id": f"call_{id}", "type": "function",
                "function": {"name": tool, "arguments": json.dumps(input)},
            }
            for index, (id, tool, input) in enumerate(calls)
        ]
        delta = {"role": "assistant"}
        delta |= {"tool_calls": tool_calls} if calls else {"content": FAREWELL}
        head = {"id": fresh("chatcmpl"), "created": 1, "model": request.get("model", "scripted")}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        end = "tool_calls" if calls else "stop"
        if not request.get("stream"):
            choice = {"index": 0, "message": delta, "finish_reason": end}
            return {**head, "object": "chat.completion", "choices": [choice], "usage": usage}

        def stream():
            head["object"] = "chat.completion.chunk"
            for choice in ({"delta": delta, "finish_reason": None},
                           {"delta": {}, "finish_reason": end}):
                yield None, {**head, "choices": [{"index": 0, **choice}]}
            yield None, {**head, "choices": [], "usage": usage}
            yield None, "[DONE]"

        return stream()


class Gemini:
    """https://ai.google.dev/api/generate-content"""

    @staticmethod
    def conversation(request):
        for content in request["contents"]:
            for part in content["parts"]:
                if "functionResponse" in part:
                    yield "result", json.dumps(part["functionResponse"].get("response"))
                elif content.get("role") == "user":
                    yield "user", text_of(part)

    @staticmethod
    def events(calls, _request):
        parts = [
            {"functionCall": {"name": tool, "args": input}} for _, tool, input in calls
        ] or [{"text": FAREWELL}]
        return [(None, {
            "candidates": [
                {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
            ],
            "usageMetadata": {
                "promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2
            },
        })]


class GeminiAtOnce(Gemini):
    """The same as one document."""

    @staticmethod
    def events(calls, request):
        return Gemini.events(calls, request)[0][1]


PROTOCOLS = {
    "/messages": Anthropic,
    "/responses": Responses,
    "/chat/completions": ChatCompletions,
    ":streamGenerateContent": Gemini,
    ":generateContent": GeminiAtOnce,
}
