#!/usr/bin/env python3
"""A stand-in for a llama-server binary: the protocol without a model, for tests of what goes wrong.

Counts and times are made up and deterministic. Environment: STAND_IN_ABORT_AFTER=N aborts with a message at the Nth
completion, STAND_IN_NO_ROLLBACK=1 re-processes the whole prompt, STAND_IN_WRONG_SAMPLING=1 reports another temperature.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FLAGS = """
-m --host --port -c -np -cram -t -tb -td -tbd -md -ctk -ctv --spec-type --spec-draft-n-max --spec-draft-p-min
--spec-synth-rates --spec-ngram-simple-size-n --spec-ngram-simple-size-m
"""
VALUED = FLAGS.split()


def parse(arguments):
    """Flags as a dict; ends like llama-server on one that it does not know."""
    flags, rest = {}, iter(arguments)
    for flag in rest:
        if flag not in VALUED:
            print(f"error: invalid argument: {flag}", file=sys.stderr)
            raise SystemExit(1)
        flags[flag] = next(rest, "")
    return flags


class Handler(BaseHTTPRequestHandler):
    flags: dict = {}
    completions = 0

    def log_message(self, format, *args):
        pass

    def answer(self, document, status=200):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        props = {"default_generation_settings": {}, "model_path": self.flags.get("-m", ""), "build_info": "b1-stand-in"}
        self.answer({"status": "ok"} if self.path == "/health" else props)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            return self.answer({"tokens": [ord(c) % 97 + 100 for c in body["content"]]})
        if self.path == "/apply-template":
            return self.template(body["messages"])
        Handler.completions += 1
        if Handler.completions == int(os.environ.get("STAND_IN_ABORT_AFTER", "-1")):
            print("GGML_ASSERT(n_tokens > 0) failed: stand-in ran out of luck", file=sys.stderr, flush=True)
            os.abort()
        self.complete(body)

    def template(self, messages):
        """Turns in brackets; builds before templates (STAND_IN_TEMPLATE=none) have no such path."""
        if os.environ.get("STAND_IN_TEMPLATE") == "none":
            return self.answer({"error": {"code": 404, "message": "File Not Found"}}, 404)
        if messages[0]["role"] == "tool":
            return self.answer({"error": {"code": 500, "message": "a conversation begins with a user"}}, 500)
        self.answer({"prompt": "".join(f"[{turn['role']}]{turn['content']}" for turn in messages)})

    def complete(self, body):
        prompt, count = len(body["prompt"]), body["n_predict"]
        context = prompt if not body.get("cache_prompt") else self.cached(body["prompt"])
        drafts = int(self.flags.get("--spec-draft-n-max", self.flags.get("--spec-ngram-simple-size-m", 0)))
        forced = "--spec-synth-rates" in self.flags
        events, made, spent, drafted, accepted = [(1, 0.001, 0, 0)], 1, 0.0, 0, 0
        while made < count:
            d = min(drafts, count - made - 1)
            a = 0 if forced else d // 2
            made += a + 1
            spent += 2.0 + 1.5 * d + 0.001 * prompt
            drafted, accepted = drafted + d, accepted + a
            events.append((a + 1, spent, drafted, accepted))
        processed = prompt - context if body.get("cache_prompt") else prompt
        settings = {
            k: body[k] for k in ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "seed") if k in body
        }
        if os.environ.get("STAND_IN_WRONG_SAMPLING"):
            settings["temperature"] = 0.8

        def timings(n, ms, d, a):
            base = {
                "cache_n": prompt - processed,
                "prompt_n": processed,
                "prompt_ms": 3.0 + processed,
                "predicted_n": n,
            }
            return {**base, "predicted_ms": ms, **({"draft_n": d, "draft_n_accepted": a} if d else {})}

        last = timings(count, events[-1][1], drafted, accepted)
        final = {"stop": True, "tokens": [], "timings": last, "generation_settings": settings}
        if not body.get("stream"):
            return self.answer({**final, "tokens": [100 + i % 7 for i in range(count)]})
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        n = 0
        for tokens, ms, d, a in events:
            for _ in range(tokens):
                n += 1
                self.event({"stop": False, "tokens": [100], "timings": timings(n, ms, d, a)})
        self.event(final)

    last: list = []

    def cached(self, prompt):
        """Tokens of the prompt that the slot still has."""
        common = 0
        for a, b in zip(Handler.last, prompt):
            if a != b:
                break
            common += 1
        trimmed = common < len(Handler.last)
        Handler.last = prompt
        if os.environ.get("STAND_IN_NO_ROLLBACK") and trimmed:
            return 0
        return min(common, len(prompt) - 1)

    def event(self, document):
        self.wfile.write(b"data: " + json.dumps(document).encode() + b"\n\n")


class Server(ThreadingHTTPServer):
    """Takes as many connections at once as a verification pass opens."""

    request_queue_size = 128


def main():
    if sys.argv[1:] == ["--help"]:
        print("\n".join(VALUED), "\nspeculation types: none,draft-simple,draft-mtp,ngram-simple")
        return
    if sys.argv[1:] == ["--version"]:
        print("version: 1 (stand-in)")
        return
    Handler.flags = parse(sys.argv[1:])
    if os.environ.get("STAND_IN_PID_FILE"):
        with open(os.environ["STAND_IN_PID_FILE"], "a") as file:
            print(os.getpid(), file=file)
    server = Server(("127.0.0.1", int(Handler.flags["--port"])), Handler)
    print("stand-in listens", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
