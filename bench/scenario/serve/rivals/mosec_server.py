"""mosec (Rust front end) with its batching: raw float32 in and out. python mosec_server.py FOLDER PORT SHAPE KIND"""
import os
import sys

import numpy as np
from common import rows_of, runner
from mosec import Server, Worker

# The worker processes run this file again, with mosec's arguments in place of ours.
words = os.environ.setdefault("MOSEC_SERVER_WORDS", "\n".join(sys.argv[1:])).split("\n")
folder, port, shape, kind = words[0], words[1], tuple(map(int, words[2].split("x"))), words[3]
sys.argv = [sys.argv[0], "--address", "127.0.0.1", "--port", port, "--log-level", "error"]


class Model(Worker):
    def __init__(self):
        self.run = runner(kind, folder, 1)

    def deserialize(self, data):
        return rows_of(data, shape)

    def serialize(self, data):
        return data.tobytes()

    def forward(self, data):
        sizes = np.cumsum([len(rows) for rows in data])[:-1]
        return np.split(self.run(np.concatenate(data)), sizes)


if __name__ == "__main__":
    server = Server()
    server.append_worker(Model, num=1, max_batch_size=32, max_wait_time=1)
    server.run()
