"""Figures of "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks" (2019), by table.

Spearman x 100 unless said otherwise. A cell is (row of the table, data set) -> the paper's figure.
"""

STS = (
    "sts12_test",
    "sts13_test",
    "sts14_test",
    "sts15_test",
    "sts16_test",
    "stsb_test",
    "sick_test",
)
TRANSFER = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")

TABLE_1 = {
    "average GloVe": (55.14, 70.66, 59.73, 68.25, 63.66, 58.02, 53.76),
    "average BERT": (38.78, 57.98, 57.98, 63.15, 61.06, 46.35, 58.40),
    "BERT CLS": (20.16, 30.01, 20.09, 36.88, 38.08, 16.50, 42.63),
    "SBERT-NLI": (70.97, 76.53, 73.19, 79.09, 74.30, 77.03, 72.91),
}
TABLE_2 = {  # stsb_test
    "average GloVe": 58.02,
    "average BERT": 46.35,
    "SBERT-NLI": 77.03,
    "SBERT-STSb": 84.67,
    "SBERT-NLI-STSb": 85.35,
    "cross-encoder STSb": 84.30,
    "cross-encoder NLI-STSb": 88.33,
}
TABLE_3 = {"tf-idf": 42.95, "average BERT": 35.07, "SBERT-AFS": 74.13}  # ten folds
TABLE_4 = {"SBERT-WikiSec": 80.42}  # accuracy of triplets
TABLE_5 = {
    "average GloVe": (77.25, 78.30, 91.17, 87.85, 80.18, 83.00, 72.87),
    "average BERT": (78.66, 86.25, 94.37, 88.66, 84.40, 92.80, 69.45),
    "BERT CLS": (78.68, 84.85, 94.21, 88.23, 84.13, 91.40, 71.13),
    "SBERT-NLI": (83.64, 89.43, 94.39, 89.86, 88.96, 89.60, 76.00),
}
TABLE_6_POOLING = {"mean": 80.78, "max": 79.07, "cls": 79.80}  # dev of STSb, trained on NLI
TABLE_6_CONCAT = {
    "u,v": 66.04,
    "|u-v|": 69.78,
    "u*v": 70.54,
    "|u-v|,u*v": 78.37,
    "u,v,u*v": 77.44,
    "u,v,|u-v|": 80.78,
    "u,v,|u-v|,u*v": 80.44,
}
TABLE_7 = {"plain batches": 44.0, "length-sorted batches": 83.0}  # sentences/s on a CPU
