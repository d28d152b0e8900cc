"""PyTriton, which is Triton's core with Python models, and its dynamic batcher. python pytriton_server.py FOLDER PORT SHAPE KIND"""
import sys

import numpy as np
from common import runner
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

folder, port, shape, kind = sys.argv[1], int(sys.argv[2]), tuple(map(int, sys.argv[3].split("x"))), sys.argv[4]
run = runner(kind, folder, 1)


@batch
def infer(images):
    return {"output_0": run(images)}


with Triton(config=TritonConfig(http_address="127.0.0.1", http_port=port, grpc_port=port + 1, metrics_port=port + 2)) as triton:
    triton.bind(model_name="model", infer_func=infer,
                inputs=[Tensor(name="images", dtype=np.float32, shape=shape)],
                outputs=[Tensor(name="output_0", dtype=np.float32, shape=(-1,))],
                config=ModelConfig(max_batch_size=32, batcher=DynamicBatcher(max_queue_delay_microseconds=0)))
    triton.serve()
