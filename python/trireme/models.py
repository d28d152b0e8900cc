"""The example models that ``python -m trireme.export`` writes.

Each is one module for both uses: called with inputs and targets it returns the mean loss, called with inputs alone it
returns logits. Training and inference graphs of one model therefore share their parameter names, and the weights of a
training run load into the inference graph as they are.
"""

import torch
import torch.nn.functional as F
from torch import nn

# Shapes: B batch, T context, C width, H heads, V = 256 byte values.
BYTES = 256


def _loss(logits, targets):
    """Mean cross entropy over all positions; logits [B, …, classes], targets [B, …] int64."""
    if targets is None:
        return logits
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


class Attention(nn.Module):
    """Causal self-attention over [B, T, C]."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, context, width = x.shape
        q, k, v = self.qkv(x).view(batch, context, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, context, width))


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))


class ByteGPT(nn.Module):
    """A GPT over bytes: int64 windows [B, T] and their next bytes [B, T]."""

    def __init__(self, layers=4, width=256, heads=4, context=128, dropout=0.0, tied=False):
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of heads {heads}")
        self.tokens = nn.Embedding(BYTES, width)
        self.positions = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, BYTES, bias=False)
        self._init_weights(layers)
        if tied:
            self.head.weight = self.tokens.weight

    def _init_weights(self, layers):
        # As GPT-2: normal 0.02, biases 0, and the two projections that end in the residual stream scaled down by its
        # depth, so that the stream's variance does not grow with the number of blocks.
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        for block in self.blocks:
            for projection in (block.attention.out, block.down):
                nn.init.normal_(projection.weight, std=0.02 / (2 * layers) ** 0.5)

    def forward(self, tokens, targets=None):
        x = self.dropout(self.tokens(tokens) + self.positions.weight[: tokens.shape[1]])
        for block in self.blocks:
            x = block(x)
        return _loss(self.head(self.norm(x)), targets)


class ByteLSTM(nn.Module):
    """A recurrent language model over bytes: int64 windows [B, T] and their next bytes [B, T]."""

    def __init__(self, layers=2, width=256, dropout=0.0):
        super().__init__()
        self.tokens = nn.Embedding(BYTES, width)
        self.lstm = nn.LSTM(width, width, num_layers=layers, dropout=dropout, batch_first=True)
        self.head = nn.Linear(width, BYTES)

    def forward(self, tokens, targets=None):
        return _loss(self.head(self.lstm(self.tokens(tokens))[0]), targets)


class ConvNet(nn.Module):
    """Two convolutions with batch norm, for digits: float32 images [B, 1, 28, 28] and int64 labels [B]."""

    def __init__(self, width=32, dropout=0.0):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(2 * width)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(2 * width * 7 * 7, 10)

    def forward(self, images, labels=None):
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(images))), 2)
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        return _loss(self.head(self.dropout(x.flatten(1))), labels)


class MLP(nn.Module):
    """A perceptron for digits: float32 images [B, 1, 28, 28] and int64 labels [B]. `layers` hidden layers."""

    def __init__(self, layers=2, width=2048, dropout=0.0):
        super().__init__()
        sizes = [28 * 28] + layers * [width]
        self.hidden = nn.ModuleList(nn.Linear(n, m) for n, m in zip(sizes, sizes[1:]))
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(sizes[-1], 10)

    def forward(self, images, labels=None):
        x = images.flatten(1)
        for layer in self.hidden:
            x = self.dropout(F.relu(layer(x)))
        return _loss(self.head(x), labels)


def byte_windows(batch, context):
    """Sample inputs of the byte models."""
    windows = torch.randint(0, BYTES, (batch, context + 1))
    return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


def digits(batch):
    """Sample inputs of the digit models."""
    return torch.rand(batch, 1, 28, 28), torch.randint(0, 10, (batch,))
