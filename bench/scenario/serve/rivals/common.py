"""What the rivals' servers share: the model as PyTorch, onnxruntime or OpenVINO runs it, on rows of float32."""
import os

import numpy as np


def runner(kind, folder, threads):
    """rows [B, …] float32 -> scores [B, …]; `folder` holds model.pt2 and model.onnx."""
    if kind == "torch":
        import torch

        torch.set_num_threads(threads)
        module = torch.export.load(os.path.join(folder, "model.pt2")).module()

        def run(rows):
            with torch.inference_mode():
                return module(torch.from_numpy(rows)).numpy()

        return run
    if kind == "onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(os.path.join(folder, "model.onnx"), options, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        return lambda rows: session.run(None, {name: rows})[0]
    import openvino

    core = openvino.Core()
    compiled = core.compile_model(os.path.join(folder, "model.onnx"), "CPU", {"INFERENCE_NUM_THREADS": threads})
    return lambda rows: compiled(rows)[0]


def rows_of(body, shape):
    return np.frombuffer(body, np.float32).reshape(-1, *shape)
