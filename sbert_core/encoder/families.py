"""Model family -> where it keeps the modules of a transformer layer.

A family is known here if its layers are those of BERT (post-norm) under whatever names: to add one,
name the modules of its layer and list it in `FAMILIES`. `backbone.choose_backbone` compares the
states of every loaded model with those of its own forward, so a wrong entry is never used.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerNames:
    """Where a family keeps the parts of a post-norm transformer layer."""

    layers: str
    query: str
    key: str
    value: str
    attention_out: str
    attention_norm: str
    up: str
    activation: str
    down: str
    norm: str
    score_dropout: str
    attention_dropout: str | None
    dropout: str


BERT = LayerNames(
    layers="encoder.layer",
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    attention_out="attention.output.dense",
    attention_norm="attention.output.LayerNorm",
    up="intermediate.dense",
    activation="intermediate.intermediate_act_fn",
    down="output.dense",
    norm="output.LayerNorm",
    score_dropout="attention.self.dropout",
    attention_dropout="attention.output.dropout",
    dropout="output.dropout",
)
DISTILBERT = LayerNames(
    layers="transformer.layer",
    query="attention.q_lin",
    key="attention.k_lin",
    value="attention.v_lin",
    attention_out="attention.out_lin",
    attention_norm="sa_layer_norm",
    up="ffn.lin1",
    activation="ffn.activation",
    down="ffn.lin2",
    norm="output_layer_norm",
    score_dropout="attention.dropout",
    attention_dropout=None,
    dropout="ffn.dropout",
)
MPNET = LayerNames(
    layers="encoder.layer",
    query="attention.attn.q",
    key="attention.attn.k",
    value="attention.attn.v",
    attention_out="attention.attn.o",
    attention_norm="attention.LayerNorm",
    up="intermediate.dense",
    activation="intermediate.intermediate_act_fn",
    down="output.dense",
    norm="output.LayerNorm",
    score_dropout="attention.attn.dropout",
    attention_dropout="attention.dropout",
    dropout="output.dropout",
)
FAMILIES = {
    "bert": BERT,
    "roberta": BERT,
    "xlm-roberta": BERT,
    "camembert": BERT,
    "electra": BERT,
    "distilbert": DISTILBERT,
    "mpnet": MPNET,
}
