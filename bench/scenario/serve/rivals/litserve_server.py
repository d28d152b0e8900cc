"""LitServe with its batching: JSON in and out, its own protocol. python litserve_server.py FOLDER PORT SHAPE KIND"""
import sys

import litserve
import numpy as np
from common import runner

folder, port, shape, kind = sys.argv[1], int(sys.argv[2]), tuple(map(int, sys.argv[3].split("x"))), sys.argv[4]


class Api(litserve.LitAPI):
    def setup(self, device):
        self.run = runner(kind, folder, 1)

    def decode_request(self, request):
        return np.asarray(request["input"], np.float32).reshape(shape)

    def batch(self, inputs):
        return np.stack(inputs)

    def predict(self, rows):
        return self.run(rows)

    def unbatch(self, output):
        return list(output)

    def encode_response(self, output):
        return {"output": output.tolist()}


if __name__ == "__main__":
    api = Api(max_batch_size=32, batch_timeout=0.001)
    litserve.LitServer(api, accelerator="cpu", workers_per_device=1).run(
        host="127.0.0.1", port=port, generate_client_file=False, log_level="error")
