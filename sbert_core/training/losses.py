"""Sentence vectors of a batch -> loss.

In:  vectors of the encoder, not normalised, one matrix per role (anchor and positive, say), and
     labels where the objective has them; the labels of ranking are keys of the texts.
Out: one loss per row where rows are independent; one number where they are compared with each
     other, which then needs the rows of all ranks.

Shapes: B rows, R roles, D dimensions, K candidates, C classes.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sbert_core.choices import Distance, ExampleFormat, ObjectiveName

Vectors = Sequence[Tensor]

# Features of two sentence vectors u and v, as in the paper's ablation.
FEATURES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "u": lambda u, v: u,
    "v": lambda u, v: v,
    "|u-v|": lambda u, v: (u - v).abs(),
    "u*v": lambda u, v: u * v,
}
CONCATENATIONS = (
    "u,v",
    "|u-v|",
    "u*v",
    "|u-v|,u*v",
    "u,v,u*v",
    "u,v,|u-v|",
    "u,v,|u-v|,u*v",
)
# Cosines are multiplied by this before the softmax; 20 is the usual value.
SCALE = 20.0


def softmax_losses(u_BD: Tensor, v_BD: Tensor, label_B: Tensor, head: "SoftmaxHead") -> Tensor:
    """Cross-entropy of a linear classifier over features of both vectors."""
    return F.cross_entropy(head(u_BD, v_BD), label_B, reduction="none")


def cosine_losses(u_BD: Tensor, v_BD: Tensor, score_B: Tensor) -> Tensor:
    """Squared error of the cosine against a score in 0..1."""
    return (F.cosine_similarity(u_BD, v_BD) - score_B) ** 2


def triplet_losses(near: Tensor, far: Tensor, margin: float) -> Tensor:
    """max(0, near - far + margin), from the distances of positive and negative to the anchor."""
    return F.relu(near - far + margin)


def distances(a_BD: Tensor, b_BD: Tensor, kind: Distance) -> Tensor:
    """The distance of each row of a from the same row of b."""
    match kind:
        case Distance.EUCLIDEAN:
            # The root of 0 has no slope: equal vectors would give NaN gradients.
            return ((a_BD - b_BD) ** 2).sum(1).clamp_min(1e-12).sqrt()
        case Distance.COSINE:
            return 1 - F.cosine_similarity(a_BD, b_BD)
        case Distance.MANHATTAN:
            return (a_BD - b_BD).abs().sum(1)


def ranking_loss(query_BD: Tensor, candidate_KD: Tensor, key_BR: Tensor) -> Tensor:
    """Cross-entropy of finding candidate i for query i among all candidates of the batch.

    key_BR: keys of each row's texts, query first; equal texts have equal keys. A candidate that
    is another known answer to the query is left out.
    """
    scores_BK = F.normalize(query_BD, dim=1) @ F.normalize(candidate_KD, dim=1).T * SCALE
    scores_BK = scores_BK.masked_fill(other_answers(key_BR), -torch.inf)
    return F.cross_entropy(scores_BK, torch.arange(len(query_BD), device=scores_BK.device))


def other_answers(key_BR: Tensor) -> Tensor:
    """Which candidates (B x K) answer a query, beside the answer of its own row?

    An answer is every text that some row of the batch pairs with the same query, whether it occurs
    as the answer of another row or as a negative.
    """
    query_B, answer_B, candidate_K = key_BR[:, 0], key_BR[:, 1], key_BR[:, 1:].T.flatten()
    same_query_BB = query_B[:, None] == query_B[None, :]
    same_answer_BK = answer_B[:, None] == candidate_K[None, :]
    # Products of floats, since GPUs have none of integers.
    is_answer_BK = (same_query_BB.float() @ same_answer_BK.float()) > 0
    own_BK = torch.eye(*is_answer_BK.shape, dtype=torch.bool, device=is_answer_BK.device)
    return is_answer_BK & ~own_BK


def cosent_loss(u_BD: Tensor, v_BD: Tensor, score_B: Tensor) -> Tensor:
    """log(1 + sum of exp(scale (cos_i - cos_j))) over pairs of rows with score_i < score_j."""
    cos_B = F.cosine_similarity(u_BD, v_BD) * SCALE
    gaps_BB = cos_B[:, None] - cos_B[None, :]
    wrong = gaps_BB[score_B[:, None] < score_B[None, :]]
    return torch.cat([cos_B.new_zeros(1), wrong]).logsumexp(0)


class SoftmaxHead(nn.Module):
    """A linear classifier over features of two vectors.

    dim: of one vector. concat: comma-separated names of `FEATURES`; ValueError for others.
    """

    def __init__(self, dim: int, num_classes: int, concat: str = "u,v,|u-v|") -> None:
        super().__init__()
        self.features = parse_features(concat)
        self.concat = concat
        self.dim = dim
        self.linear = nn.Linear(dim * len(self.features), num_classes)

    def forward(self, u_BD: Tensor, v_BD: Tensor) -> Tensor:
        """Logits (B, C). Vectors truncated to fewer dimensions use the weights of those."""
        dim = u_BD.shape[1]
        features_BF = torch.cat([FEATURES[name](u_BD, v_BD) for name in self.features], dim=1)
        weight = self.linear.weight
        weight_CF = weight.view(len(weight), -1, self.dim)[..., :dim].flatten(1)
        return F.linear(features_BF, weight_CF, self.linear.bias)

    @torch.inference_mode()
    def predict(self, u_BD: np.ndarray, v_BD: np.ndarray) -> np.ndarray:
        """The class number of each pair of vectors."""
        device = self.linear.weight.device
        u, v = (torch.from_numpy(np.ascontiguousarray(x)).to(device) for x in (u_BD, v_BD))
        classes: np.ndarray = self(u, v).argmax(1).cpu().numpy()
        return classes

    def save(self, folder: Path, classes: Sequence[str]) -> None:
        """Write weights, settings and the names of the classes."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file(self.state_dict(), folder / "model.safetensors")
        facts = {"concat": self.concat, "dim": self.dim, "classes": list(classes)}
        (folder / "config.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> "tuple[SoftmaxHead, list[str]]":
        """The head and the names of its classes; ValueError if the folder has none."""
        if not (folder / "config.json").is_file():
            raise ValueError(f"{folder} holds no softmax head; train with --objective softmax")
        facts = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        head = cls(facts["dim"], len(facts["classes"]), facts["concat"])
        head.load_state_dict(load_file(folder / "model.safetensors"))
        return head.eval(), facts["classes"]


def parse_features(concat: str) -> tuple[str, ...]:
    """Names of `FEATURES` from a comma-separated list; ValueError for unknown or repeated ones."""
    names = tuple(name.strip().replace(" ", "") for name in concat.split(","))
    unknown = [name for name in names if name not in FEATURES]
    if unknown or len(set(names)) != len(names):
        raise ValueError(
            f"concat {concat!r} is not made of {', '.join(FEATURES)}, each at most once; "
            f"the paper's are: {'; '.join(CONCATENATIONS)}"
        )
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A loss and its settings. Make one with `make_objective`.

    roles: how many texts a row has at least.
    is_joint: rows are compared with each other, so the loss needs those of all ranks at once.
    dims: Matryoshka dimensions; the loss is also computed on vectors truncated to each.
    """

    name: ObjectiveName
    roles: int
    is_joint: bool
    margin: float = 1.0
    distance: Distance = Distance.EUCLIDEAN
    dims: tuple[int, ...] = ()

    def __call__(self, vectors: Vectors, labels: Tensor | None, head: nn.Module | None) -> Tensor:
        """Losses of rows, or the joint loss; summed over the Matryoshka dimensions.

        vectors: one matrix per role. head: the classifier of the softmax objective.
        """
        loss = self._loss(vectors, labels, head)
        for dim in self.dims:
            loss = loss + self._loss([x_BD[:, :dim] for x_BD in vectors], labels, head)
        return loss

    def _loss(self, vectors: Vectors, labels: Tensor | None, head: nn.Module | None) -> Tensor:
        match self.name:
            case ObjectiveName.SOFTMAX:
                assert labels is not None and isinstance(head, SoftmaxHead)
                return softmax_losses(vectors[0], vectors[1], labels, head)
            case ObjectiveName.COSINE:
                assert labels is not None
                return cosine_losses(vectors[0], vectors[1], labels)
            case ObjectiveName.TRIPLET:
                near, far = (distances(vectors[0], x, self.distance) for x in vectors[1:3])
                return triplet_losses(near, far, self.margin)
            case ObjectiveName.RANKING:
                assert labels is not None
                return ranking_loss(vectors[0], torch.cat(list(vectors[1:])), labels)
            case ObjectiveName.COSENT:
                assert labels is not None
                return cosent_loss(vectors[0], vectors[1], labels)


# The format of examples each objective learns from.
OBJECTIVES = {
    ObjectiveName.SOFTMAX: ExampleFormat.PAIRS,
    ObjectiveName.COSINE: ExampleFormat.SCORED,
    ObjectiveName.TRIPLET: ExampleFormat.TRIPLETS,
    ObjectiveName.RANKING: ExampleFormat.RANKING,
    ObjectiveName.COSENT: ExampleFormat.SCORED,
}
JOINT_OBJECTIVES = (ObjectiveName.RANKING, ObjectiveName.COSENT)


def make_objective(
    name: str,
    *,
    margin: float = 1.0,
    distance: str = "euclidean",
    dims: Sequence[int] = (),
) -> Objective:
    """The objective of that name; ValueError if it is unknown.

    margin, distance: of the triplet objective. dims: Matryoshka dimensions.
    """
    if name not in list(ObjectiveName):
        raise ValueError(f"objective {name!r} is unknown; known: {', '.join(OBJECTIVES)}")
    kind = ObjectiveName(name)
    return Objective(
        name=kind,
        roles=3 if kind is ObjectiveName.TRIPLET else 2,
        is_joint=kind in JOINT_OBJECTIVES,
        margin=margin,
        distance=Distance(distance),
        dims=tuple(dims),
    )
