"""Asks a byte model behind the Open Inference Protocol to continue a text: ask.py URL TEXT [BYTES]"""

import sys

import numpy as np
import tritonclient.http as triton


def main(url, text, count=40):
    client = triton.InferenceServerClient(url.removeprefix("http://"))
    context = client.get_model_metadata("gpt")["inputs"][0]["shape"][1]
    written = list(text.encode())
    for _ in range(int(count)):
        # The model sees a full window; what stands after the text cannot change the prediction at its last byte.
        window = written[-context:]
        tokens = triton.InferInput("tokens", [1, context], "INT64")
        tokens.set_data_from_numpy(np.array([window + [0] * (context - len(window))], np.int64))
        logits = client.infer("gpt", [tokens]).as_numpy("output_0")
        written.append(int(logits[0, len(window) - 1].argmax()))
    print(bytes(written).decode(errors="replace"))


if __name__ == "__main__":
    main(*sys.argv[1:])
