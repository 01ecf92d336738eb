"""Each objective against a few lines of numpy, in value and, by finite differences, in gradient."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sbert_core.choices import Distance
from sbert_core.training.batch import token_keys
from sbert_core.training.losses import (
    CONCATENATIONS,
    SCALE,
    SoftmaxHead,
    distances,
    make_objective,
    parse_features,
    ranking_loss,
    triplet_losses,
)

B, D = 5, 6
RNG = np.random.default_rng(0)
U, V, W = (RNG.normal(size=(B, D)) for _ in range(3))
SCORES = np.array([0.1, 0.9, 0.4, 0.4, 0.7])
LABELS = np.array([0, 2, 1, 1, 0])


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def cos(a, b):
    return (unit(a) * unit(b)).sum(1)


def log_softmax(x):
    x = x - x.max(1, keepdims=True)
    return x - np.log(np.exp(x).sum(1, keepdims=True))


def numpy_loss(name, vectors, labels=None, head=None, dims=(), distance="euclidean", margin=1.0):
    """The definitions, row by row where they are per row; means over rows."""
    total = 0.0
    for dim in (vectors[0].shape[1], *dims):
        cut = [x[:, :dim] for x in vectors]
        if name == "softmax":
            total += head(cut, labels, dim)
        elif name == "cosine":
            total += np.mean([(cos(u[None], v[None])[0] - s) ** 2
                              for u, v, s in zip(cut[0], cut[1], labels, strict=True)])  # fmt: skip
        elif name == "triplet":
            far = {
                "euclidean": lambda a, b: np.sqrt(((a - b) ** 2).sum()),
                "manhattan": lambda a, b: np.abs(a - b).sum(),
                "cosine": lambda a, b: 1 - cos(a[None], b[None])[0],
            }[distance]
            total += np.mean([max(0.0, far(a, p) - far(a, n) + margin)
                              for a, p, n in zip(*cut, strict=True)])  # fmt: skip
        elif name == "ranking":
            scores = SCALE * unit(cut[0]) @ unit(np.concatenate(cut[1:])).T
            total += np.mean([ranked(scores[i], i, labels) for i in range(len(scores))])
        elif name == "cosent":
            c = SCALE * cos(cut[0], cut[1])
            total += np.log(1 + sum(np.exp(c[i] - c[j]) for i in range(len(c))
                                    for j in range(len(c)) if labels[i] < labels[j]))  # fmt: skip
    return total


def ranked(scores, i, names):
    """-log of the share of answer i among what competes: no other right answer to the query."""
    answers = {row[1] for row in names if row[0] == names[i][0]}
    texts = [row[role] for role in range(1, names.shape[1]) for row in names]
    competing = [k for k, text in enumerate(texts) if k == i or text not in answers]
    return -log_softmax(scores[None, competing])[0, competing.index(i)]


def torch_loss(objective, vectors, labels=None, head=None):
    losses = objective(vectors, None if labels is None else torch.from_numpy(labels), head)
    return losses if objective.is_joint else losses.mean()


def assert_equal_with_gradient(objective, arrays, reference, labels=None, head=None):
    leaves = [torch.from_numpy(x).requires_grad_() for x in arrays]
    loss = torch_loss(objective, leaves, labels, head)
    assert loss.item() == pytest.approx(reference(arrays), rel=1e-6)
    loss.backward()
    step = 1e-5
    for number, leaf in enumerate(leaves):
        for place in [(0, 0), (1, 3), (B - 1, D - 1)]:
            moved = []
            for sign in (1, -1):
                changed = [x.copy() for x in arrays]
                changed[number][place] += sign * step
                moved.append(reference(changed))
            slope = (moved[0] - moved[1]) / (2 * step)
            assert leaf.grad[place].item() == pytest.approx(slope, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("dims", [(), (4, 2)])
@pytest.mark.parametrize("concat", CONCATENATIONS)
def test_softmax_over_every_concatenation_of_the_paper(concat, dims):
    torch.manual_seed(0)
    head = SoftmaxHead(D, 3, concat).double()
    weight, bias = head.linear.weight.detach().numpy(), head.linear.bias.detach().numpy()
    made = {"u": lambda u, v: u, "v": lambda u, v: v,
            "|u-v|": lambda u, v: abs(u - v), "u*v": lambda u, v: u * v}  # fmt: skip
    names = concat.split(",")

    def classified(cut, labels, dim):
        seen = np.hstack([made[name](*cut) for name in names])
        columns = np.concatenate([np.arange(dim) + D * block for block in range(len(names))])
        rows = log_softmax(seen @ weight[:, columns].T + bias)
        return -np.mean([rows[i, label] for i, label in enumerate(labels)])

    objective = make_objective("softmax", dims=dims)
    assert_equal_with_gradient(
        objective,
        [U, V],
        lambda x: numpy_loss("softmax", x, LABELS, classified, dims),
        LABELS,
        head,
    )


@pytest.mark.parametrize("dims", [(), (4, 2)])
@pytest.mark.parametrize("name", ["cosine", "cosent"])
def test_objectives_of_scored_pairs(name, dims):
    assert_equal_with_gradient(
        make_objective(name, dims=dims),
        [U, V],
        lambda x: numpy_loss(name, x, SCORES, dims=dims),
        SCORES,
    )


@pytest.mark.parametrize("dims", [(), (3,)])
@pytest.mark.parametrize("distance", list(Distance))
def test_triplets_under_every_distance(distance, dims):
    objective = make_objective("triplet", distance=distance, dims=dims, margin=0.7)
    assert_equal_with_gradient(
        objective,
        [U, V, W],
        lambda x: numpy_loss("triplet", x, dims=dims, distance=distance, margin=0.7),
    )


DISTINCT = np.arange(B * 3).reshape(B, 3)
# Queries, answers, negatives. 10 answers two queries; 1 has two answers, of which one is a negative
# of another row and one of its own; 22 is a negative twice, and stays one.
REPEATS = np.array([[1, 10, 22], [2, 10, 11], [1, 11, 10], [3, 12, 22], [1, 10, 23]])


@pytest.mark.parametrize("names", [DISTINCT, REPEATS], ids=["distinct", "repeats"])
@pytest.mark.parametrize("dims", [(), (3,)])
@pytest.mark.parametrize("num_negatives", [0, 1])
def test_ranking_with_and_without_hard_negatives_and_repeats(num_negatives, dims, names):
    arrays = [U, V, W][: 2 + num_negatives]
    names = np.ascontiguousarray(names[:, : len(arrays)])
    assert_equal_with_gradient(
        make_objective("ranking", dims=dims),
        arrays,
        lambda x: numpy_loss("ranking", x, names, dims=dims),
        names,
    )


def test_ranking_without_repeats_has_the_bits_it_had_without_looking_for_them():
    def gradients(masked):
        u, v = (torch.from_numpy(x).float().requires_grad_() for x in (U, V))
        if masked:
            loss = ranking_loss(u, v, torch.from_numpy(DISTINCT[:, :2]))
        else:
            scores = F.normalize(u, dim=1) @ F.normalize(v, dim=1).T * SCALE
            loss = F.cross_entropy(scores, torch.arange(B))
        loss.backward()
        return loss, u.grad, v.grad

    for ours, plain in zip(gradients(True), gradients(False), strict=True):
        assert torch.equal(ours, plain)


def test_ranking_of_one_answer_repeated_costs_nothing():
    """Every candidate is right: there is nothing to be found wrong."""
    names = torch.tensor([[number, 7] for number in range(B)])
    assert ranking_loss(torch.from_numpy(U), torch.from_numpy(V), names) == 0


def test_token_keys_are_equal_for_equal_texts_alone():
    ids = [np.array(x) for x in ([1, 2], [1, 2, 3], [1], [1, 2], [12], [2, 1])]
    keys = token_keys([ids[:3], ids[3:]])
    assert keys.shape == (3, 2)
    assert keys[0, 0] == keys[0, 1]
    assert len(np.unique(keys)) == 5


def test_worked_triplets():
    near, far = torch.tensor([1.0, 1.0]), torch.tensor([2.5, 1.2])
    torch.testing.assert_close(triplet_losses(near, far, 1.0), torch.tensor([0.0, 0.8]))


def test_equal_vectors_have_finite_gradients():
    x = torch.ones(2, 3, requires_grad=True)
    distances(x, torch.ones(2, 3), Distance.EUCLIDEAN).sum().backward()
    assert torch.isfinite(x.grad).all()


def test_scores_without_an_order_give_no_cosent_loss():
    same = np.full(B, 0.5)
    assert torch_loss(make_objective("cosent"), [torch.from_numpy(x) for x in (U, V)], same) == 0


@pytest.mark.parametrize("concat", ["u,w", "u,u", ""])
def test_unknown_concatenations_are_refused(concat):
    with pytest.raises(ValueError, match="concat"):
        parse_features(concat)


def test_head_is_saved_with_its_classes(tmp_path):
    torch.manual_seed(0)
    head = SoftmaxHead(D, 3, "|u-v|,u*v")
    head.save(tmp_path / "head", ["a", "b", "c"])
    again, classes = SoftmaxHead.load(tmp_path / "head")
    u, v = U.astype(np.float32), V.astype(np.float32)
    assert classes == ["a", "b", "c"]
    np.testing.assert_array_equal(again.predict(u, v), head.predict(u, v))
