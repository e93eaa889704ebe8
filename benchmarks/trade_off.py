"""What the pictures of docs/objectives.md and docs/constraints.md tune: a forest that is accurate, or small.

The commands are beside the pictures.
"""

import pickle

from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split


def forest(trees: int, depth: int, leaf: int) -> dict[str, float]:
    """The accuracy of a random forest on handwritten digits, and its size."""
    x, y = load_digits(return_X_y=True)
    train, test, right, wanted = train_test_split(x, y, test_size=0.4, random_state=0)
    model = RandomForestClassifier(trees, max_depth=depth, min_samples_leaf=leaf, random_state=0).fit(train, right)
    return {"accuracy": float(model.score(test, wanted)), "kilobytes": len(pickle.dumps(model)) / 1024}
