"""uvicorn with PyTorch in the request handler: raw float32 in, raw float32 out. python uvicorn_server.py FOLDER PORT SHAPE KIND"""
import sys

import uvicorn
from common import rows_of, runner

folder, port, shape, kind = sys.argv[1], int(sys.argv[2]), tuple(map(int, sys.argv[3].split("x"))), sys.argv[4]
run = runner(kind, folder, 2)


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    answer = run(rows_of(body, shape).copy()).tobytes() if scope["method"] == "POST" else b"ready"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(answer)).encode())]})
    await send({"type": "http.response.body", "body": answer})


uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", access_log=False)
