"""Vectors and classes -> accuracy of a plain classifier on them (SentEval's transfer tasks).

A logistic regression on standardised vectors; its regularisation is chosen inside the training
rows, never on those it is scored on.
"""

import numpy as np
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

STRENGTHS = (0.01, 0.1, 1.0)
FOLDS = 10
INNER_FOLDS = 3
MAX_STEPS = 300


def ten_fold_accuracy(vectors: np.ndarray, label: np.ndarray, seed: int = 0) -> float:
    """Mean accuracy x 100 over folds that keep the share of classes."""
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    scores = [
        split_accuracy(vectors[train], label[train], vectors[test], label[test], seed)
        for train, test in folds.split(vectors, label)
    ]
    return float(np.mean(scores))


def split_accuracy(
    train: np.ndarray, train_label: np.ndarray, test: np.ndarray, test_label: np.ndarray, seed: int
) -> float:
    """Accuracy x 100 on test rows of a classifier fitted to train rows."""
    strength = choose_strength(train, train_label, seed)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=MAX_STEPS))
    model.fit(train, train_label)
    return 100 * float(model.score(test, test_label))


def choose_strength(vectors: np.ndarray, label: np.ndarray, seed: int) -> float:
    """The inverse regularisation strength with the best accuracy in cross-validation."""
    scaled = StandardScaler().fit_transform(vectors)
    folds = StratifiedKFold(INNER_FOLDS, shuffle=True, random_state=seed)
    search = LogisticRegressionCV(
        Cs=list(STRENGTHS),
        scoring="accuracy",
        cv=folds,
        max_iter=MAX_STEPS,
        l1_ratios=(0.0,),
        use_legacy_attributes=False,
    )
    return float(search.fit(scaled, label).C_)
