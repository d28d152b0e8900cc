#!/usr/bin/env python3
"""Sends damaged HTTP requests to `trireme serve` and looks for answers that should not be.

    python tests/fuzz/fuzz_serve.py --seconds 60 [--port 8000] [--seed 1]

Without --port it starts a server of its own (release build) with a small model. The corpus is tests/fuzz/corpus/serve: whole requests, one
a file; each is damaged at random and sent on a connection of its own. Findings, written to bench/out/fuzz and ending the run with
code 1: no answer to a request that came whole, an answer that is not HTTP, a status of 500 or more (but 501 and 503), an error
without a reason, or a server that no longer lives. A finding is fixed by adding its file to the corpus.
"""
import argparse
import json
import random
import re
import socket
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORPUS = Path(__file__).parent / "corpus" / "serve"
NUMBERS = [b"0", b"-1", b"1", b"2147483648", b"4294967295", b"9223372036854775808", b"-9223372036854775808", b"1e999", b"0.5",
           b"99999999999999999999999999", b"NaN", b"null", b"true", b"[]", b"{}", b'""']
TOKENS = [b"\r\n", b"\r\n\r\n", b"\0", b"\xff", b'"', b"[", b"]", b"{", b"}", b",", b":", b"\\u0000", b"\\ud800", b"Content-Length: 5\r\n",
          b"Transfer-Encoding: chunked\r\n", b"Inference-Header-Content-Length: 3\r\n", b"Expect: 100-continue\r\n", b"%00", b"/../",
          b"Content-Encoding: gzip\r\n", b'"data"', b'"shape"', b'"binary_data_size"', b"[" * 200]
ALLOWED = {501, 503}
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"  # for Expect, and to see whether a client that ended its side is still there


def damage(request, others, rng):
    """One to four random changes."""
    data = bytearray(request)
    for _ in range(rng.randint(1, 4)):
        kind = rng.randrange(8)
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.randint(1, 12))
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at:end]
        elif kind == 2:
            data[at:at] = rng.choice(TOKENS)
        elif kind == 3:
            data[at:at] = data[at:end] * rng.randint(1, 50)
        elif kind == 4:
            numbers = list(re.finditer(rb"-?\d+(\.\d+)?", bytes(data)))
            if numbers:
                chosen = rng.choice(numbers)
                data[chosen.start():chosen.end()] = rng.choice(NUMBERS)
        elif kind == 5:
            del data[at:]
        elif kind == 6:
            other = rng.choice(others)
            cut = rng.randrange(len(other) + 1)
            data[at:] = other[cut:]
        else:
            data[at:end] = bytes(rng.randrange(256) for _ in range(end - at))
    return bytes(data)


def with_right_length(request):
    """The same with a Content-Length that fits, so that damage reaches the parser of bodies."""
    head, separator, body = request.partition(b"\r\n\r\n")
    return re.sub(rb"(?i)content-length: *[^\r\n]*", b"Content-Length: %d" % len(body), head) + separator + body


def is_whole(request):
    """A request that certainly ends, so it must be answered."""
    head, separator, body = request.partition(b"\r\n\r\n")
    length = re.findall(rb"(?im)^content-length: (\d+)\r?$", head)
    plain = re.fullmatch(rb"(GET|POST) /[!-~]* HTTP/1\.1(\r\n[A-Za-z-]+: [ -~]*)*", head)
    return bool(separator and plain and len(length) == 1 and int(length[0]) == len(body)
                and b"transfer-encoding" not in head.lower() and b"expect" not in head.lower())


def exchange(port, request, timeout=10):
    """All that comes back."""
    got = b""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                got += part
        except (BrokenPipeError, ConnectionResetError):
            pass
    return got


def finding(request, answer):
    """What is wrong with this answer, or None."""
    answer = answer.removeprefix(INTERIM).removeprefix(INTERIM)
    if not answer:
        return "no answer to a whole request" if is_whole(request) else None
    status = re.match(rb"HTTP/1\.[01] (\d{3})", answer)
    if not status:
        return "an answer that is not HTTP"
    code = int(status.group(1))
    if code >= 500 and code not in ALLOWED:
        return f"status {code}"
    if code >= 400 and b"HEAD" not in request[:20]:
        body = answer.split(b"\r\n\r\n", 1)[-1]
        try:
            if not json.JSONDecoder().raw_decode(body.decode(errors="replace"))[0]["error"]:
                return "an error without a reason"
        except (ValueError, KeyError, TypeError):
            return "an error whose body is not {error: …}"
    return None


def fuzz(port, seed, seconds=float("inf"), count=float("inf"), out=None):
    """Until the time or the count is reached: (requests sent, findings as (what, request))."""
    rng = random.Random(seed)
    corpus = [path.read_bytes() for path in sorted(CORPUS.glob("*.http"))]
    assert corpus, f"no corpus in {CORPUS}"
    found, sent, end = [], 0, time.monotonic() + seconds
    while time.monotonic() < end and sent < count and len(found) < 10:
        request = damage(rng.choice(corpus), corpus, rng)
        if rng.random() < 0.7:
            request = with_right_length(request)
        try:
            wrong = finding(request, exchange(port, request))
        except socket.timeout:
            wrong = "the connection stays open without an answer"
        except ConnectionRefusedError:
            wrong = "the server is gone"
        sent += 1
        if wrong:
            found.append((wrong, request))
            if out:
                out.mkdir(parents=True, exist_ok=True)
                (out / f"{seed}_{sent}.http").write_bytes(request)
            if wrong == "the server is gone":
                break
    return sent, found


def own_server(folder):
    sys.path[:0] = [str(ROOT / "tests" / "multi"), str(ROOT / "python")]
    import torch
    from serving import serving

    from trireme import export

    export.inference_graph(torch.nn.Linear(4, 2), (torch.rand(2, 4),), folder / "line.pt2")
    return serving(folder, '[[model]]\nname = "line"\npath = "line.pt2"\n', "max_body = '1MiB'\nrequest_timeout = '5s'\nidle_timeout = '5s'")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--port", type=int)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    out = ROOT / "bench" / "out" / "fuzz"
    if args.port:
        sent, found = fuzz(args.port, args.seed, args.seconds, out=out)
    else:
        with tempfile.TemporaryDirectory() as folder, own_server(Path(folder)) as server:
            sent, found = fuzz(server.port, args.seed, args.seconds, out=out)
    for what, request in found:
        print(f"finding: {what}: {request[:300]!r}")
    print(f"{sent} damaged requests, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
