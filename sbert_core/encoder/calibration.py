"""Which values the inputs of a model's linear layers take: the ranges that int8 divides into steps.

In:  a model and token ids of the built-in texts.
Out: for each linear layer, the least and the largest value of each of its inputs.

The ranges are fixed when a model is loaded, and part of its recipe: a range measured in a batch
would make a vector depend on the other texts. They are computed in float64, so that processors
that round float32 sums in another order find the same ones. Values outside are clipped.

Shapes: T tokens, K inputs.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from sbert_core.encoder.int8_products import InputRange
from sbert_core.encoder.tokenizer import TextTokenizer

# Texts of many kinds and languages: a model clips what none of them brings up.
CALIBRATION_TEXTS = (
    "The committee postponed its decision until the auditors had seen the second report.",
    "A man is slicing an onion while two children play with a dog in the garden.",
    "how do i reset my password if i no longer have the old phone",
    "Returns the number of bytes written, or -1 if the stream is closed.",
    "def add(a: int, b: int = 0) -> int:\n    return a + b  # never overflows\n",
    "SELECT name, count(*) FROM orders WHERE price >= 19.99 GROUP BY name ORDER BY 2 DESC;",
    "Wireless headphones, black, 40 mm drivers, 30 h battery, USB-C, model WH-220B (2nd gen.)",
    "fix: retry uploads that failed with status 503, see #4812",
    "ok thanks!! see u at 8 :) 😀",
    "BREAKING: Shares fall 3.7% after the quarterly results; the board meets on 14 March 2019",
    "In 1887 the physicist measured the speed of light in two directions and found no difference.",
    "https://example.org/a/b.html?id=42&lang=en#top",
    '{"id": 7, "tags": ["x", "y"], "valid": true, "score": 0.25, "note": null}',
    # Tokens of very short texts take other values than those of sentences: a column that is wide
    # in one of them is wider still in the next, so there are many.
    "No.",
    "good morning",
    "lol nope",
    "Sounds great to me!",
    "why not?",
    "maybe later, sorry",
    "Chapter 2",
    "n/a",
    "42",
    "Blue shoes",
    "I agree.",
    "Never mind.",
    "Sure, go ahead.",
    "Thanks a lot!",
    "Hello?",
    "Wow, really?",
    "You are right.",
    "It depends.",
    "Fair point.",
    "Who knows.",
    "Not again...",
    "yes",
    "Come on!",
    "Nothing changed.",
    "Very funny",
    "True enough.",
    "It works now.",
    "What happened?",
    "Same here",
    "Be careful.",
    "Does it matter?",
    "ok",
    "I see.",
    "Well done!",
    "Not all of the patients who received the drug recovered, and none of the others did.",
    "The quick brown fox jumps over the lazy dog. " * 6,
    "Add 200 g of flour, a pinch of salt and two eggs; stir, and bake for 35 minutes at 180 °C.",
    "Whereas the parties have agreed upon the terms herein, the lessee shall pay the rent monthly "
    "in advance, without deduction or set-off, on or before the first day of each month, and any "
    "sum that remains unpaid for fourteen days shall bear interest at four per cent per annum.",
    "IN NO EVENT SHALL THE AUTHORS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY.",
    "O, that this too too solid flesh would melt, / Thaw and resolve itself into a dew!",
    "Der Zug nach München fährt heute wegen Bauarbeiten zwanzig Minuten später ab.",
    "Elle a oublié son parapluie à la bibliothèque, mais il ne pleuvait déjà plus.",
    "¿Dónde está la estación más cercana? Está a unos diez minutos a pie.",
    "Il governo ha approvato ieri la nuova legge sul lavoro dopo mesi di discussioni.",
    "O preço do café subiu outra vez, e os clientes começam a reclamar.",
    "De kinderen speelden buiten totdat het begon te regenen.",
    "Завтра утром мы поедем на дачу, если погода не испортится.",
    "Książka, którą mi pożyczyłeś, była naprawdę ciekawa.",
    "Yarın sabah toplantıdan önce raporu bitirmem gerekiyor.",
    "Hôm nay trời đẹp nên chúng tôi đi bộ ra công viên.",
    "今天下午的会议改到三点半，请大家准时参加。",
    "この商品は在庫がないため、発送まで二週間ほどかかります。",
    "내일은 비가 온다고 하니 우산을 꼭 챙겨 가세요.",
    "سوف نلتقي غدا أمام المكتبة في الساعة الخامسة مساء.",
    "मौसम अच्छा है, इसलिए हम आज बाज़ार पैदल जाएँगे।",
    "Ο καφές εδώ είναι φθηνότερος από ό,τι στο κέντρο της πόλης.",
    "קניתי לחם וחלב בדרך הביתה.",
    "วันนี้อากาศร้อนมาก เราจึงอยู่บ้านทั้งวัน",
)
VOCABULARY_TEXTS, VOCABULARY_LENGTH = 8, 24
MARGIN = 0.05  # of a range's width, at either end, for texts that go beyond


# By the weight of the layer: it stays when the layer itself is replaced by a packed one.
InputRanges = dict[Tensor, InputRange]


def calibrate(model: PreTrainedModel, tokenizer: TextTokenizer) -> InputRanges:
    """The ranges of a float32 model's linear layers over the built-in texts."""
    texts = tokenizer.tokenize(list(CALIBRATION_TEXTS)).split()
    texts += vocabulary_ids(tokenizer.vocab_size, tokenizer.max_length)
    return measure_ranges(model, [ids for ids in texts if len(ids)])


def vocabulary_ids(vocab_size: int, max_length: int) -> list[np.ndarray]:
    """Made-up texts of token ids from all over the vocabulary: it may hold other languages."""
    length = min(VOCABULARY_LENGTH, max_length)
    number_X = np.arange(VOCABULARY_TEXTS * length)
    # Neighbours in a text are far from each other in the vocabulary.
    ids_X = number_X * vocab_size // len(number_X)
    return list(ids_X.reshape(length, VOCABULARY_TEXTS).T.copy())


def ranges_digest(ranges: InputRanges) -> str:
    """Digest of the ranges, in the order of the model's layers."""
    total = hashlib.sha256()
    for own in ranges.values():
        total.update(torch.stack([own.low_K, own.high_K]).numpy().tobytes())
    return total.hexdigest()


@torch.no_grad()  # weights converted in inference mode could never be trained
def measure_ranges(model: PreTrainedModel, texts: Iterable[np.ndarray]) -> InputRanges:
    """The ranges of the linear layers that a float32 model uses, over the token ids of texts."""
    ranges: InputRanges = {}

    def widen(linear: nn.Linear, inputs: tuple[Tensor, ...]) -> None:
        x_TK = inputs[0].flatten(0, -2)
        low_K, high_K = x_TK.amin(0), x_TK.amax(0)
        if (known := ranges.get(linear.weight)) is not None:
            low_K, high_K = torch.minimum(low_K, known.low_K), torch.maximum(high_K, known.high_K)
        ranges[linear.weight] = InputRange(low_K, high_K)

    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not linears:  # a static model
        return {}
    with _as_float64(model), ExitStack() as hooks:
        for linear in linears:
            hooks.callback(linear.register_forward_pre_hook(widen).remove)
        for ids in texts:
            model(input_ids=torch.from_numpy(ids)[None].to(model.device))
    return {weight: _widen_and_round(own) for weight, own in ranges.items()}


def _widen_and_round(own: InputRange) -> InputRange:
    """The range with a margin; ends of few digits, so that any order of float64 sums agrees."""
    margin_K = (own.high_K - own.low_K) * MARGIN
    low_K, high_K = own.low_K - margin_K, own.high_K + margin_K
    return InputRange(*(end_K.to("cpu", torch.bfloat16).float() for end_K in (low_K, high_K)))


@contextmanager
def _as_float64(model: PreTrainedModel) -> Iterator[None]:
    """The model in float64 inside the block; its weights come back with the same bits."""
    model.double()
    try:
        yield
    finally:
        model.float()  # type: ignore[no-untyped-call]
