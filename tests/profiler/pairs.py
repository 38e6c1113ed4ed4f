"""Checkpoints made by hand: vocabularies by token texts, shapes by the sizes that reports name."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from specgauge.model.shape import LinearAttention, Shape, SoftmaxAttention, Tensors, Weights
from specgauge.profiler.checkpoints.checkpoint import Checkpoint, Tokenizer

BILLION = 10**9


def entries(tokens: Iterable[str]) -> bytes:
    texts = [token.encode() for token in tokens]
    return b"".join(len(text).to_bytes(8, "little") + text for text in texts)


def tokenizer(tokens: Iterable[str], rows: int = 0, special: Mapping[str, int] | None = None, **changes) -> Tokenizer:
    names = list(tokens)
    return replace(
        Tokenizer(
            model="bpe",
            pre="qwen2",
            entries=entries(names),
            tokens=len(names),
            rows=rows or len(names),
            special=special or {"bos": 1, "eos": 2},
        ),
        **changes,
    )


def words(count: int, word: str = "w") -> list[str]:
    return [f"{word}{i}" for i in range(count)]


def dense(parameters: float, bits: float = 8.5, rows: int = 32_000, hidden: int = 2048, layers: int = 24) -> Shape:
    """A model of `parameters` with an untied head."""
    table = rows * hidden
    rest = int(parameters) - 2 * table
    return Shape(
        Weights(
            embedding=Tensors(table, int(table * bits / 8)),
            output_head=Tensors(table, int(table * bits / 8)),
            mlp=Tensors(rest, int(rest * bits / 8)),
        ),
        vocabulary=rows,
        hidden=hidden,
        attention=(SoftmaxAttention(layers, 16, 4, 128, 128),),
    )


def mixture(total: float, active: float, experts: int, per_token: int, bits: float = 4.5) -> Shape:
    """`total` parameters of which a token uses `active`: the routed ones follow from both."""
    routed = (total - active) / (1 - per_token / experts)
    return Shape(
        Weights(
            mlp=Tensors(int(total - routed), int((total - routed) * bits / 8)),
            experts=Tensors(int(routed), int(routed * bits / 8)),
        ),
        vocabulary=248_320,
        hidden=4096,
        attention=(SoftmaxAttention(15, 32, 2, 256, 256),),
        experts=experts,
        experts_per_token=per_token,
    )


def hybrid(parameters: float = 27e9, bits: float = 4.5) -> Shape:
    """Qwen3.8-27B-like: 48 layers with recurrent state, 16 with a cache."""
    table = 248_320 * 5120
    rest = int(parameters) - 2 * table
    return Shape(
        Weights(
            embedding=Tensors(table, int(table * bits / 8)),
            output_head=Tensors(table, int(table * bits / 8)),
            mlp=Tensors(rest, int(rest * bits / 8)),
        ),
        vocabulary=248_320,
        hidden=5120,
        attention=(SoftmaxAttention(16, 24, 4, 256, 256),),
        linear_attention=(LinearAttention(48, 48, 16, 128, 128, 4),),
    )


MTP_LAYER = Shape(Weights(), vocabulary=248_320, hidden=5120, attention=(SoftmaxAttention(1, 24, 4, 256, 256),))


def checkpoint(name: str, shape: Shape | None, tokens: Tokenizer | None = None, **changes) -> Checkpoint:
    size, parameters = (shape.size_bytes, shape.parameters) if shape else (10**9, 10**9)
    made = Checkpoint(
        path=f"/models/{name}.gguf",
        format="gguf",
        files=(f"/models/{name}.gguf",),
        size_bytes=size,
        name=name,
        family="Qwen3",
        architecture="qwen3",
        quant="Q8_0",
        quant_bits=8.5,
        parameters=parameters,
        shape=shape,
        tokenizer=tokens,
        context_length=32_768,
        recurrent=bool(shape and shape.linear_attention),
    )
    return replace(made, **changes)
