"""One running llama-server: started on a free loopback port, watched, asked, and ended with us.

The embedded server of xllamacpp and a binary of the user's are started alike, through `llama_host.py`. A server that the
user runs already is only asked, never ended.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx

from .base import EngineFailed

START_TIMEOUT_SECONDS = 900.0
REQUEST_TIMEOUT = httpx.Timeout(600.0, connect=10.0)
CAUSE = re.compile(
    r"error|fail|abort|assert|out of memory|invalid argument|unable|cannot|not found|terminate", re.IGNORECASE
)
LOG_PREFIX = re.compile(r"^[\d.]+ [A-Z] +")


def free_port() -> int:
    """A TCP port that nobody listens on at 127.0.0.1 right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def log_cause(log: Path) -> str:
    """The line of a server's log that most likely says why it ended: the last that speaks of a failure, or the last."""
    try:
        tail = log.read_bytes()[-20000:].decode(errors="replace")
    except OSError:
        return "its log cannot be read"
    lines = [LOG_PREFIX.sub("", line).strip() for line in tail.splitlines()]
    lines = [re.sub(r"server pid \d+$", "", line) for line in lines]
    lines = [line for line in lines if line]
    telling = [line for line in lines if CAUSE.search(line) and "Traceback" not in line]
    chosen = (telling or lines or ["its log is empty"])[-1]
    return chosen if len(chosen) <= 300 else chosen[:300] + "..."


def exit_reason(status: int) -> str:
    """An exit status in words. llama_host reports a signal of its child as 128 + number."""
    number = -status if status < 0 else status - 128 if status > 128 else 0
    if number:
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        hint = " (built for another processor?)" if name == "SIGILL" else ""
        return f"killed by {name}{hint}"
    return f"exit status {status}"


class Refused(EngineFailed):
    """The server answered, and said no; it is still there."""


class NoSuchPath(Refused):
    """The server does not know what was asked for: an older build."""


class LlamaServer:
    """A llama-server process and a client for it. Raises EngineFailed with the log's cause when it is gone."""

    def __init__(self, url: str, process: subprocess.Popen[bytes] | None = None, log: Path | None = None):
        self.url = url
        self.process = process
        self.log = log
        self.cached: tuple[int, ...] = ()
        self.warm = False
        self.start_seconds = 0.0
        # One connection a request: a server closes a kept one after a while or a number of requests, and a request that is
        # on its way then is lost ("disconnected without sending a response", seen at about the hundredth).
        single = httpx.Limits(max_keepalive_connections=0)
        self._client = httpx.Client(base_url=url, timeout=REQUEST_TIMEOUT, trust_env=False, limits=single)
        self._clock_id: int | None = None

    @classmethod
    def start(cls, flags: list[str], log: Path, binary: str | None = None) -> "LlamaServer":
        """Start a server with `flags` and wait until it is healthy; everything it says goes to `log`."""
        port = free_port()
        host = [sys.executable, "-m", "specgauge.profiler.engines.llama_host"]
        chosen = ["--binary", binary, "--"] if binary else []
        command = [*host, *chosen, "--host", "127.0.0.1", "--port", str(port), *flags]
        began = time.monotonic()
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as sink:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
            )
        server = cls(f"http://127.0.0.1:{port}", process, log)
        try:
            server._wait_until_healthy(began + START_TIMEOUT_SECONDS)
        except BaseException:
            server.close()
            raise
        server.start_seconds = time.monotonic() - began
        return server

    def _wait_until_healthy(self, deadline: float) -> None:
        pause = 0.02
        while time.monotonic() < deadline:
            self._check_alive("at start")
            try:
                if self._client.get("/health", timeout=5.0).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(pause)
            pause = min(0.25, pause * 1.2)
        raise EngineFailed(f"llama-server did not become healthy in {START_TIMEOUT_SECONDS:.0f} s; log: {self.log}")

    def _check_alive(self, when: str) -> None:
        if self.process is None:
            return
        status = self.process.poll()
        if status is not None:
            assert self.log is not None
            raise EngineFailed(
                f"llama-server ended {when}: {exit_reason(status)}: {log_cause(self.log)}; log: {self.log}"
            )

    def _gone(self, error: httpx.HTTPError) -> EngineFailed:
        """What to raise when a request failed: the death of the process if it died, else the failure itself."""
        if self.process is not None:
            try:
                self.process.wait(timeout=3.0)
            except subprocess.TimeoutExpired:
                pass
            try:
                self._check_alive("while measuring")
            except EngineFailed as death:
                return death
        what = str(error) or type(error).__name__
        return EngineFailed(f"llama-server at {self.url} stopped answering: {what}; log: {self.log or 'its own'}")

    def get(self, path: str, timeout_seconds: float | None = None) -> Any:
        """The JSON that GET `path` answers."""
        timeout = httpx.USE_CLIENT_DEFAULT if timeout_seconds is None else timeout_seconds
        try:
            return self._answer(self._client.get(path, timeout=timeout))
        except httpx.HTTPError as error:
            raise self._gone(error) from None

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The JSON that POST `path` answers to `body`."""
        try:
            return self._answer(self._client.post(path, json=body))
        except httpx.HTTPError as error:
            raise self._gone(error) from None

    def _answer(self, response: httpx.Response) -> Any:
        try:
            answer = response.json()
        except (ValueError, RecursionError):
            raise EngineFailed(f"{self.url} does not answer as a llama-server does (no JSON)") from None
        if response.status_code != 200:
            error = answer.get("error", {}) if isinstance(answer, dict) else {}
            message = error.get("message", response.text[:200]) if isinstance(error, dict) else str(error)
            kind = NoSuchPath if response.status_code == 404 else Refused
            raise kind(f"llama-server refused a request: {message}")
        return answer

    def stream(self, body: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
        """The events of a streamed /completion, the final one (stop: true) included."""
        try:
            with self._client.stream("POST", "/completion", json={**body, "stream": True}) as response:
                if response.status_code != 200:
                    response.read()
                    self._answer(response)
                for line in response.iter_lines():
                    if line.startswith("data: ") and line != "data: [DONE]":
                        yield json.loads(line[6:])
        except httpx.HTTPError as error:
            raise self._gone(error) from None
        except (ValueError, RecursionError):
            raise EngineFailed(f"{self.url} streams something that is not JSON") from None

    def processor_seconds(self) -> float | None:
        """Processor time that the server's process has used; None where the system does not tell."""
        if self._clock_id is None:
            pid = self._server_pid()
            if pid is None or not hasattr(time, "clock_gettime"):
                return None
            self._clock_id = (~pid << 3) | 2
        try:
            return time.clock_gettime(self._clock_id)
        except OSError:
            return None

    def _server_pid(self) -> int | None:
        if self.log is None or sys.platform != "linux":
            return None
        found = re.search(rb"^server pid (\d+)$", self.log.read_bytes()[:4096], re.MULTILINE)
        return int(found.group(1)) if found else None

    def close(self) -> None:
        """End the process (ours only) and its children; never raises."""
        self._client.close()
        process = self.process
        if process is None:
            return
        try:
            if process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=2.0)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
